//! A request in the words of a command line.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;
use tidegate::Request;

/// The arguments that describe a request.
#[derive(Args)]
pub(super) struct Words {
    /// The key, or attributes such as user=alice
    #[arg(value_name = "KEY|NAME=VALUE")]
    words: Vec<String>,
    /// An attribute; the same as a bare NAME=VALUE
    #[arg(short, long = "attribute", value_name = "NAME=VALUE")]
    attributes: Vec<String>,
    /// The key, if it contains "="
    #[arg(long)]
    key: Option<String>,
    /// What the request costs
    #[arg(long, default_value_t = 1)]
    cost: u64,
}

/// A request, as the HTTP API takes it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Asked {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) cost: u64,
}

/// Why words are no request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum WordsError {
    #[error("there is neither a key nor an attribute: give attributes, such as user=alice, or a key")]
    Nothing,
    #[error("there are two keys, {first:?} and {second:?}: a request has one; attributes are NAME=VALUE")]
    TwoKeys { first: String, second: String },
    #[error("{text:?} is no attribute: write NAME=VALUE, such as user=alice")]
    NoAttribute { text: String },
    #[error("the attribute {name:?} is given twice")]
    Twice { name: String },
}

impl Words {
    pub(super) fn read(&self) -> Result<Asked, WordsError> {
        let mut asked = Asked { key: self.key.clone(), attributes: BTreeMap::new(), cost: self.cost };
        for word in &self.words {
            if word.contains('=') {
                asked.add(word)?;
            } else if let Some(first) = asked.key.replace(word.clone()) {
                return Err(WordsError::TwoKeys { first, second: word.clone() });
            }
        }
        self.attributes.iter().try_for_each(|text| asked.add(text))?;
        if asked.key.is_none() && asked.attributes.is_empty() { Err(WordsError::Nothing) } else { Ok(asked) }
    }
}

impl Asked {
    fn add(&mut self, text: &str) -> Result<(), WordsError> {
        let no_attribute = || WordsError::NoAttribute { text: text.to_owned() };
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(no_attribute)?;
        match self.attributes.insert(name.to_owned(), value.to_owned()) {
            None => Ok(()),
            Some(_) => Err(WordsError::Twice { name: name.to_owned() }),
        }
    }

    /// The same in the library's words. Its key, if left out, is the attribute `user`, as over HTTP.
    pub(super) fn request(&self) -> Request<'_> {
        let request = match self.key.as_ref().or_else(|| self.attributes.get("user")) {
            Some(key) => Request::new(key),
            None => Request::without_key(),
        };
        self.attributes.iter().fold(request, |request, (name, value)| request.with(name, value)).cost(self.cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], attributes: &[&str], key: Option<&str>) -> Result<String, WordsError> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let words = Words { words: owned(words), attributes: owned(attributes), key: key.map(str::to_owned), cost: 2 };
        words.read().map(|asked| serde_json::to_string(&asked).unwrap_or_default())
    }

    #[test]
    fn words_are_a_key_or_attributes() {
        assert_eq!(read(&["alice"], &[], None).as_deref(), Ok(r#"{"key":"alice","cost":2}"#));
        let both = r#"{"attributes":{"path":"/a=b","user":"alice"},"cost":2}"#;
        assert_eq!(read(&["user=alice", "path=/a=b"], &[], None).as_deref(), Ok(both));
        assert_eq!(read(&["user=alice"], &["path=/a=b"], None).as_deref(), Ok(both));
        assert_eq!(read(&[], &[], Some("a=b")).as_deref(), Ok(r#"{"key":"a=b","cost":2}"#));
    }

    #[test]
    fn what_is_no_request_is_told() {
        assert_eq!(read(&[], &[], None), Err(WordsError::Nothing));
        let two = WordsError::TwoKeys { first: "a".into(), second: "b".into() };
        assert_eq!(read(&["a", "b"], &[], None), Err(two));
        assert_eq!(read(&["user=a", "user=b"], &[], None), Err(WordsError::Twice { name: "user".into() }));
        for text in ["=a", "alice"] {
            assert_eq!(read(&[], &[text], None), Err(WordsError::NoAttribute { text: text.into() }));
        }
    }
}
