//! The conditions of limitador, which are CEL, as far as rules can ask the same.
//!
//! A condition becomes tests that must all hold. What is not understood is told at its place in the text.

use std::ops::Range;

/// What a condition asks of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) attribute: String,
    pub(super) asks: Asks,
    /// Where it stands in the text.
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// It is one of these.
    In(Vec<String>),
    /// It is there, and none of these.
    NotIn(Vec<String>),
    StartsWith(String),
    /// It matches a pattern of `*`.
    Matches(String),
    /// It is there, and does not match.
    NotMatches(String),
    Present,
    Absent,
}

/// What was not understood, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotUnderstood {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

/// What can be said.
pub(super) const HELP: &str = "conditions may use ==, !=, in, startsWith, endsWith, contains, has(..), ! and && on \
                               descriptors[N]['key'] and texts, and || between values of one key: rewrite this one, or \
                               decide it in Envoy, by an action that adds an entry of its own";

/// The attribute of a key of a descriptor.
pub(super) fn attribute(descriptor: u32, key: &str) -> String {
    format!("descriptors[{descriptor}].{key}")
}

/// The tests of a condition.
pub(super) fn parse(text: &str) -> Result<Vec<Test>, NotUnderstood> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let tests = parser.any_of()?;
    match parser.peek() {
        None => Ok(tests),
        Some(_) => parser.refuse("this was not expected here"),
    }
}

/// The attribute that a variable names.
pub(super) fn variable(text: &str) -> Result<String, NotUnderstood> {
    let mut parser = Parser { text, tokens: tokens(text)?, next: 0, depth: 0 };
    match (parser.operand()?, parser.peek()) {
        ((Operand::Attribute(attribute), _), None) => Ok(attribute),
        _ => {
            let message = "a variable must be a value of a descriptor: write descriptors[0]['key']".to_owned();
            Err(NotUnderstood { span: 0..text.len(), message })
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Text(String),
    Number(String),
    /// `==`, `&&`, `(` and the like.
    Sign(&'static str),
}

const SIGNS: [&str; 17] = ["==", "!=", "&&", "||", "<=", ">=", "(", ")", "[", "]", ".", ",", "!", "<", ">", "?", ":"];

fn tokens(text: &str) -> Result<Vec<(Token, Range<usize>)>, NotUnderstood> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = match c {
            _ if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '\'' | '"' => {
                let (value, length) = quoted(rest, c).ok_or_else(|| NotUnderstood {
                    span: at..text.len(),
                    message: "this text has no end, or an escape that is not supported".into(),
                })?;
                tokens.push((Token::Text(value), at..at + length));
                length
            }
            _ if c.is_ascii_digit() => {
                let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                tokens.push((Token::Number(rest[..length].to_owned()), at..at + length));
                length
            }
            _ if c.is_ascii_alphabetic() || c == '_' => {
                let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                tokens.push((Token::Name(rest[..length].to_owned()), at..at + length));
                length
            }
            _ => match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
                Some(sign) => {
                    tokens.push((Token::Sign(sign), at..at + sign.len()));
                    sign.len()
                }
                None => {
                    let message = format!("{c:?} is not supported");
                    return Err(NotUnderstood { span: at..at + c.len_utf8(), message });
                }
            },
        };
        at += length;
    }
    Ok(tokens)
}

/// The value of a literal and its length in the text, quotes included.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Some((value, at + 1)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                escaped @ ('\\' | '\'' | '"') => value.push(escaped),
                _ => return None,
            },
            _ => value.push(c),
        }
    }
    None
}

/// How deep parentheses and negations may nest.
const MAX_DEPTH: usize = 32;

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token, Range<usize>)>,
    next: usize,
    depth: usize,
}

/// A side of a comparison.
#[derive(Debug, PartialEq)]
enum Operand {
    Attribute(String),
    Descriptor(u32),
    Text(String),
    Texts(Vec<String>),
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.next += usize::from(is_next);
        is_next
    }

    fn takes_name(&mut self, name: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Name(found)) if found == name);
        self.next += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), NotUnderstood> {
        if self.takes(sign) { Ok(()) } else { self.refuse(&format!("{sign:?} is missing here")) }
    }

    /// Where the next token begins.
    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.text.len(), |(_, span)| span.start)
    }

    /// From a place to the end of the last token that was taken.
    fn since(&self, start: usize) -> Range<usize> {
        let end = self.next.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(start, |(_, span)| span.end);
        start..end.max(start)
    }

    /// The next token, or the end, is wrong.
    fn refuse<T>(&self, message: &str) -> Result<T, NotUnderstood> {
        let span = self.tokens.get(self.next).map_or(self.text.len()..self.text.len(), |(_, span)| span.clone());
        Err(NotUnderstood { span, message: message.to_owned() })
    }

    fn refuse_since<T>(&self, start: usize, message: &str) -> Result<T, NotUnderstood> {
        Err(NotUnderstood { span: self.since(start), message: message.to_owned() })
    }

    /// Alternatives: one, or values of one attribute.
    fn any_of(&mut self) -> Result<Vec<Test>, NotUnderstood> {
        let start = self.at();
        let mut tests = self.all_of()?;
        while self.takes("||") {
            let others = self.all_of()?;
            match (tests.as_mut_slice(), others.as_slice()) {
                (
                    [Test { attribute, asks: Asks::In(values), .. }],
                    [Test { attribute: other, asks: Asks::In(more), .. }],
                ) if attribute == other => values.extend(more.iter().cloned()),
                _ => return self.refuse_since(start, "|| is supported only between values of one key"),
            }
        }
        Ok(tests)
    }

    fn all_of(&mut self) -> Result<Vec<Test>, NotUnderstood> {
        let mut tests = self.one()?;
        while self.takes("&&") {
            tests.extend(self.one()?);
        }
        Ok(tests)
    }

    fn one(&mut self) -> Result<Vec<Test>, NotUnderstood> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.refuse("parentheses and negations are nested too deep");
        }
        let start = self.at();
        let tests = if self.takes("!") {
            let tests = self.one()?;
            match tests.as_slice() {
                [test] => vec![negated(test).map_or_else(|| self.refuse_since(start, "this cannot be negated"), Ok)?],
                _ => return self.refuse_since(start, "! is supported only before a single comparison"),
            }
        } else if self.takes("(") {
            let tests = self.any_of()?;
            self.expect(")")?;
            tests
        } else {
            vec![self.comparison()?]
        };
        self.depth -= 1;
        Ok(tests)
    }

    fn comparison(&mut self) -> Result<Test, NotUnderstood> {
        let start = self.at();
        if self.takes_name("has") {
            self.expect("(")?;
            let (operand, _) = self.operand()?;
            self.expect(")")?;
            let Operand::Attribute(attribute) = operand else {
                return self.refuse_since(start, "has(..) needs a value of a descriptor");
            };
            return Ok(Test { attribute, asks: Asks::Present, span: self.since(start) });
        }
        let (left, method) = self.operand()?;
        if let Some(method) = method {
            return self.method(start, left, &method);
        }
        let is_equal = self.takes("==");
        if is_equal || self.takes("!=") {
            let (right, _) = self.operand()?;
            let (attribute, value) = match (left, right) {
                (Operand::Attribute(attribute), Operand::Text(value)) => (attribute, value),
                (Operand::Text(value), Operand::Attribute(attribute)) => (attribute, value),
                _ => return self.refuse_since(start, "a value of a descriptor is to be compared with a text"),
            };
            let asks = if is_equal { Asks::In(vec![value]) } else { Asks::NotIn(vec![value]) };
            return Ok(Test { attribute, asks, span: self.since(start) });
        }
        if self.takes_name("in") {
            let (right, _) = self.operand()?;
            let (attribute, asks) = match (left, right) {
                (Operand::Attribute(attribute), Operand::Texts(values)) => (attribute, Asks::In(values)),
                (Operand::Text(key), Operand::Descriptor(descriptor)) => (attribute(descriptor, &key), Asks::Present),
                _ => return self.refuse_since(start, "in is supported for a value and a list of texts"),
            };
            return Ok(Test { attribute, asks, span: self.since(start) });
        }
        self.refuse("a comparison is missing here")
    }

    fn method(&mut self, start: usize, left: Operand, method: &str) -> Result<Test, NotUnderstood> {
        self.expect("(")?;
        let (argument, _) = self.operand()?;
        self.expect(")")?;
        let (Operand::Attribute(attribute), Operand::Text(text)) = (left, argument) else {
            return self.refuse_since(start, "a value of a descriptor is to be compared with a text");
        };
        let is_plain = !text.contains(['*', '?']);
        let asks = match method {
            "startsWith" => Asks::StartsWith(text),
            "endsWith" if is_plain => Asks::Matches(format!("*{text}")),
            "contains" if is_plain => Asks::Matches(format!("*{text}*")),
            "endsWith" | "contains" => {
                return self.refuse_since(start, "a text with * or ? is supported only by == and startsWith");
            }
            _ => return self.refuse_since(start, &format!("{method} is not supported")),
        };
        Ok(Test { attribute, asks, span: self.since(start) })
    }

    /// A side of a comparison, and the method that is called on it, if one is.
    fn operand(&mut self) -> Result<(Operand, Option<String>), NotUnderstood> {
        let start = self.at();
        let token = self.peek().cloned();
        match token {
            Some(Token::Text(text)) => {
                self.next += 1;
                Ok((Operand::Text(text), None))
            }
            Some(Token::Sign("[")) => {
                self.next += 1;
                Ok((Operand::Texts(self.texts()?), None))
            }
            Some(Token::Name(name)) if matches!(name.as_str(), "true" | "false" | "null") => {
                self.refuse("values of descriptors are texts: compare with a text in quotes")
            }
            Some(Token::Name(name)) => {
                self.next += 1;
                if name == "descriptors" { self.descriptor(start) } else { self.legacy(start, &name) }
            }
            Some(Token::Number(_)) => self.refuse("values of descriptors are texts: write the number in quotes"),
            Some(Token::Sign(_)) | None => self.refuse("a value is missing here"),
        }
    }

    fn texts(&mut self) -> Result<Vec<String>, NotUnderstood> {
        let mut texts = Vec::new();
        while !self.takes("]") {
            match self.peek().cloned() {
                Some(Token::Text(text)) => texts.push(text),
                _ => return self.refuse("a list may have only texts in quotes"),
            }
            self.next += 1;
            if !self.takes(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(texts)
    }

    /// `descriptors` was taken: `[0]['key']`, `[0].key`, or `[0]` alone.
    fn descriptor(&mut self, start: usize) -> Result<(Operand, Option<String>), NotUnderstood> {
        self.expect("[")?;
        let descriptor = match self.peek() {
            Some(Token::Number(number)) => number.parse::<u32>().ok(),
            _ => None,
        };
        let Some(descriptor) = descriptor else { return self.refuse("the number of a descriptor is missing here") };
        self.next += 1;
        self.expect("]")?;
        let key = if self.takes("[") {
            let key = match self.peek().cloned() {
                Some(Token::Text(key)) => key,
                _ => return self.refuse("a key in quotes is missing here"),
            };
            self.next += 1;
            self.expect("]")?;
            key
        } else if self.takes(".") {
            match self.peek().cloned() {
                Some(Token::Name(key)) => {
                    self.next += 1;
                    key
                }
                _ => return self.refuse("a key is missing here"),
            }
        } else {
            return Ok((Operand::Descriptor(descriptor), None));
        };
        let method = self.called(start)?;
        Ok((Operand::Attribute(attribute(descriptor, &key)), method))
    }

    /// A name alone: a key of the first descriptor.
    fn legacy(&mut self, start: usize, name: &str) -> Result<(Operand, Option<String>), NotUnderstood> {
        if matches!(self.peek(), Some(Token::Sign("(" | "["))) {
            return self.refuse_since(start, &format!("{name:?} is not supported"));
        }
        let method = self.called(start)?;
        Ok((Operand::Attribute(attribute(0, name)), method))
    }

    /// The method that is called on a value, if one is.
    fn called(&mut self, start: usize) -> Result<Option<String>, NotUnderstood> {
        if !self.takes(".") {
            return Ok(None);
        }
        let name = match self.peek() {
            Some(Token::Name(name)) => name.clone(),
            _ => return self.refuse("a name is missing here"),
        };
        self.next += 1;
        if matches!(self.peek(), Some(Token::Sign("("))) {
            return Ok(Some(name));
        }
        self.refuse_since(start, "values of descriptors have no parts: write a key with dots as descriptors[0]['a.b']")
    }
}

fn negated(test: &Test) -> Option<Test> {
    let asks = match &test.asks {
        Asks::In(values) => Asks::NotIn(values.clone()),
        Asks::NotIn(values) => Asks::In(values.clone()),
        Asks::StartsWith(text) if !text.contains(['*', '?']) => Asks::NotMatches(format!("{text}*")),
        Asks::StartsWith(_) => return None,
        Asks::Matches(pattern) => Asks::NotMatches(pattern.clone()),
        Asks::NotMatches(pattern) => Asks::Matches(pattern.clone()),
        Asks::Present => Asks::Absent,
        Asks::Absent => Asks::Present,
    };
    Some(Test { asks, ..test.clone() })
}
