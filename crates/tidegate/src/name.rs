//! Names of rules: cheap to clone, of any text.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;

/// The name of a rule: any text.
///
/// Every decision carries one. A clone of a literal, or of a name of at most
/// 23 bytes, copies 24 bytes; a longer one is shared and counted.
///
/// ```
/// use tidegate::{Limit, Name, Rule};
///
/// const LOGIN: Name = Name::literal("login");
/// let rules = [Rule::new(LOGIN, Limit::per_minute(5)), Rule::new(format!("tenant-{}", 7), Limit::per_second(100))];
/// assert_eq!(rules.map(|rule| rule.name().to_string()), ["login", "tenant-7"]);
/// ```
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(SmolStr);

impl Clone for Name {
    // The copy of a text in place is inlined, the count of a shared one is not: together they are
    // compiled to a copy in parts that overlap, and the processor waits for each of them.
    #[inline(always)]
    fn clone(&self) -> Name {
        if self.0.is_heap_allocated() { self.shared() } else { Name(self.0.clone()) }
    }
}

impl Name {
    /// A name from a literal.
    ///
    /// ```
    /// use tidegate::Name;
    ///
    /// const ORDERS: Name = Name::literal("orders");
    /// assert_eq!(ORDERS, "orders");
    /// ```
    #[must_use]
    pub const fn literal(name: &'static str) -> Name {
        Name(SmolStr::new_static(name))
    }

    #[inline(never)]
    fn shared(&self) -> Name {
        Name(self.0.clone())
    }

    /// The text.
    ///
    /// ```
    /// use tidegate::Name;
    ///
    /// assert_eq!(Name::from("orders").as_str(), "orders");
    /// ```
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl From<&str> for Name {
    fn from(name: &str) -> Name {
        Name(name.into())
    }
}

impl From<String> for Name {
    fn from(name: String) -> Name {
        Name(name.into())
    }
}

impl From<&String> for Name {
    fn from(name: &String) -> Name {
        Name(name.into())
    }
}

impl From<Arc<str>> for Name {
    fn from(name: Arc<str>) -> Name {
        Name(name.into())
    }
}

impl From<&Name> for Name {
    fn from(name: &Name) -> Name {
        name.clone()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_text_however_it_was_made() {
        for text in ["", "api", "exactly twenty-two byt", "a name that is too long to stand in place"] {
            let shared: Arc<str> = text.into();
            let names = [Name::from(text), text.to_owned().into(), (&text.to_owned()).into(), shared.into()];
            for name in &names {
                assert!(name == text && *name == text && *name == names[0] && name.as_str() == text);
                assert_eq!(format!("{name:?}"), format!("{text:?}"));
            }
        }
        assert_eq!(format!("[{:>3}]", Name::literal("7")), "[  7]");
        assert!(Name::literal("7") != "8" && Name::literal("a") < Name::literal("b"));
        assert!(size_of::<Name>() == 24, "every decision carries one");
    }
}
