//! A request in the words of a command line.

use std::collections::BTreeMap;

use clap::Args;

use crate::ask::request_document::RequestDocument;

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

/// Why words are not a request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum WordsError {
    #[error("there is neither a key nor an attribute: give attributes, such as user=alice, or a key")]
    Nothing,
    #[error("there are two keys, {first:?} and {second:?}: a request has one; attributes are NAME=VALUE")]
    TwoKeys { first: String, second: String },
    #[error("{text:?} is not an attribute: write NAME=VALUE, such as user=alice")]
    NoAttribute { text: String },
    #[error("the attribute {name:?} is given twice")]
    Twice { name: String },
}

impl Words {
    pub(super) fn read(&self) -> Result<RequestDocument, WordsError> {
        let (mut key, mut attributes) = (self.key.clone(), BTreeMap::new());
        for word in &self.words {
            if word.contains('=') {
                add(&mut attributes, word)?;
            } else if let Some(first) = key.replace(word.clone()) {
                return Err(WordsError::TwoKeys { first, second: word.clone() });
            }
        }
        self.attributes.iter().try_for_each(|text| add(&mut attributes, text))?;
        if key.is_none() && attributes.is_empty() {
            return Err(WordsError::Nothing);
        }
        Ok(RequestDocument { rule: None, key, attributes, limit: None, cost: self.cost })
    }
}

fn add(attributes: &mut BTreeMap<String, String>, text: &str) -> Result<(), WordsError> {
    let no_attribute = || WordsError::NoAttribute { text: text.to_owned() };
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(no_attribute)?;
    match attributes.insert(name.to_owned(), value.to_owned()) {
        None => Ok(()),
        Some(_) => Err(WordsError::Twice { name: name.to_owned() }),
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
