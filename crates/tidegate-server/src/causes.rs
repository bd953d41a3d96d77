//! Errors on one line.

use std::{error, iter};

/// An error and what caused it, but for what it has said itself.
pub(crate) fn in_full(error: &dyn error::Error) -> String {
    let causes = iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let said = cause.to_string();
        if text.contains(&said) { text } else { format!("{text}: {said}") }
    })
}

#[cfg(test)]
mod tests {
    use tidegate::{CheckError, StoreError};

    use super::*;

    #[test]
    fn a_store_that_fails_says_why() {
        let source = std::io::Error::other("nobody is there").into();
        let error = CheckError::Store(StoreError::Failed { source });
        assert_eq!(in_full(&error), "the store gave no answer: nobody is there");
    }
}
