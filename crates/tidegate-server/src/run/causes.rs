//! Errors on one line.

use std::error;

use tidegate_redis::RedisFailure;

/// An error and what caused it, but for what it has said itself.
pub(crate) fn in_full(error: &dyn error::Error) -> String {
    joined(error, |cause| (cause.to_string(), cause.source()))
}

/// The same for clients: what Redis said is for the log.
pub(crate) fn for_clients(error: &dyn error::Error) -> String {
    joined(error, |cause| match cause.downcast_ref::<RedisFailure>() {
        Some(failure) => (failure.in_general(), None),
        None => (cause.to_string(), cause.source()),
    })
}

type Cause<'e> = &'e (dyn error::Error + 'static);

/// An error and its causes, each as `say` puts it, which also tells the next.
fn joined(error: &dyn error::Error, say: impl for<'e> Fn(Cause<'e>) -> (String, Option<Cause<'e>>)) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(found) = cause {
        let (said, next) = say(found);
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next;
    }
    text
}

#[cfg(test)]
mod tests {
    use tidegate::CheckError;
    use tidegate::store::StoreError;

    use super::*;

    #[test]
    fn a_store_that_fails_says_why() {
        let source = std::io::Error::other("connection refused").into();
        let error = CheckError::Store(StoreError::Failed { source });
        assert_eq!(in_full(&error), "the store gave no answer: connection refused");
        assert_eq!(for_clients(&error), in_full(&error));
    }

    #[test]
    fn what_redis_said_is_not_for_clients() {
        let deadline = std::time::Duration::from_millis(7);
        let failure = RedisFailure::Deadline { deadline, last_word: "READONLY secret".into() };
        let error = CheckError::from(StoreError::from(failure));
        assert!(in_full(&error).contains("READONLY secret"));
        assert_eq!(for_clients(&error), "the store gave no answer: no answer within 7ms");
    }
}
