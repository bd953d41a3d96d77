//! Keys: one part, borrowed as it is, or several, encoded so that no two
//! different lists of parts are ever the same key.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::text::Inline;

/// Whose limit is asked for.
///
/// A key has one part or several. `("a:b", "c")` and `("a", "b:c")` are
/// different keys, and so are `("ab",)` and `"ab"`: parts are
/// length-prefixed, never joined by a separator. Numbers and addresses are
/// the same key as their text.
///
/// ```
/// use tidegate::Key;
///
/// assert_ne!(Key::from(("a:b", "c")), Key::from(("a", "b:c")));
/// assert_eq!(Key::from(7_u64), Key::from("7"));
/// ```
#[derive(Clone)]
pub struct Key<'a> {
    bytes: Bytes<'a>,
    parts: Parts,
}

/// How the bytes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Parts {
    /// They are the one part.
    One,
    /// A length (LEB128) before each part.
    Several,
}

#[derive(Clone)]
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Inline(Inline),
    Boxed(Box<[u8]>),
}

impl Bytes<'_> {
    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Inline(text) => text.as_bytes(),
            Bytes::Boxed(bytes) => bytes,
        }
    }
}

impl<'a> Key<'a> {
    /// A key of several parts.
    ///
    /// ```
    /// use tidegate::{Key, KeyPart};
    ///
    /// let key = Key::of([KeyPart::from("tenant-7"), KeyPart::from("alice")]);
    /// assert_eq!(key, Key::from(("tenant-7", "alice")));
    /// ```
    pub fn of<'p>(parts: impl IntoIterator<Item = KeyPart<'p>>) -> Key<'static> {
        let mut writer = Writer::default();
        for part in parts {
            part.as_part().with_bytes(|bytes| {
                let mut length = bytes.len();
                while length >= 0x80 {
                    writer.push(&[(length & 0x7f) as u8 | 0x80]);
                    length >>= 7;
                }
                writer.push(&[length as u8]);
                writer.push(bytes);
            });
        }
        Key { bytes: writer.finish(), parts: Parts::Several }
    }

    /// The bytes that, with [`is_composite`](Key::is_composite), tell this
    /// key from every other.
    ///
    /// ```
    /// use tidegate::Key;
    ///
    /// assert_eq!(Key::from("alice").as_bytes(), b"alice");
    /// ```
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Whether the bytes are a list of length-prefixed parts.
    ///
    /// ```
    /// use tidegate::Key;
    ///
    /// assert!(Key::from(("tenant-7", "alice")).is_composite() && !Key::from("alice").is_composite());
    /// ```
    #[must_use]
    #[inline]
    pub fn is_composite(&self) -> bool {
        self.parts == Parts::Several
    }

    /// The parts, in order.
    ///
    /// ```
    /// use tidegate::Key;
    ///
    /// let key = Key::from(("tenant-7", "alice"));
    /// assert!(key.parts().eq([b"tenant-7".as_slice(), b"alice"]));
    /// ```
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.as_bytes();
        let mut one = (self.parts == Parts::One).then_some(rest);
        std::iter::from_fn(move || match self.parts {
            Parts::One => one.take(),
            Parts::Several => next_part(&mut rest),
        })
    }

    /// A copy that borrows nothing.
    ///
    /// ```
    /// use tidegate::Key;
    ///
    /// let name = String::from("alice");
    /// let key: Key<'static> = Key::from(name.as_str()).into_owned();
    /// drop(name);
    /// assert_eq!(key, Key::from("alice"));
    /// ```
    #[must_use]
    pub fn into_owned(self) -> Key<'static> {
        let bytes = match self.bytes {
            Bytes::Borrowed(bytes) => {
                let mut writer = Writer::default();
                writer.push(bytes);
                writer.finish()
            }
            Bytes::Inline(text) => Bytes::Inline(text),
            Bytes::Boxed(bytes) => Bytes::Boxed(bytes),
        };
        Key { bytes, parts: self.parts }
    }

    /// Whether there is memory to be freed.
    #[inline(always)]
    pub(crate) fn is_on_heap(&self) -> bool {
        matches!(self.bytes, Bytes::Boxed(_))
    }

    /// The key of no part that says anything.
    pub(crate) const EMPTY: Key<'static> = Key { bytes: Bytes::Borrowed(&[]), parts: Parts::One };

    /// Whether it is the [empty key](Key::EMPTY).
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.as_bytes().is_empty() && !self.is_composite()
    }

    /// Whether it is the empty key and borrows it.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        matches!(self.bytes, Bytes::Borrowed([])) && self.parts == Parts::One
    }

    #[inline]
    pub(crate) fn borrowed(bytes: &'a [u8]) -> Key<'a> {
        Key { bytes: Bytes::Borrowed(bytes), parts: Parts::One }
    }

    /// A key of one part. Where the kind of part is known, only that case is left.
    #[inline(always)]
    pub(crate) fn part(part: KeyPart<'a>) -> Key<'a> {
        match part.0 {
            Text::Borrowed(part) => Key { bytes: part.bytes(), parts: Parts::One },
            Text::Boxed(bytes) => Key { bytes: Bytes::Boxed(bytes), parts: Parts::One },
            Text::Shared(text) => Key::borrowed(text.as_bytes()).into_owned(),
        }
    }
}

fn next_part<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let mut length = 0usize;
    let mut shift = 0;
    loop {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Key<'_>) -> bool {
        self.parts == other.parts && self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Key<'_> {}

impl std::hash::Hash for Key<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.parts.hash(state);
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for Key<'_> {
    /// The parts, joined by ` / `: for people, not for telling keys apart.
    /// What cannot be seen is escaped, and empty parts at the end are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.parts().enumerate().filter(|(_, part)| !part.is_empty()).map(|(index, _)| index + 1).last();
        for (index, part) in self.parts().take(shown.unwrap_or_default()).enumerate() {
            if index > 0 {
                f.write_str(" / ")?;
            }
            for chunk in part.utf8_chunks() {
                write!(f, "{}{}", chunk.valid().escape_debug(), chunk.invalid().escape_ascii())?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// One part of a [`Key`], or the value of an attribute: text, bytes, a number
/// or an address, borrowed or owned.
///
/// ```
/// use tidegate::{Key, KeyPart};
///
/// let parts = [KeyPart::from("alice"), KeyPart::from(7_u64)];
/// assert_eq!(Key::of(parts), Key::from(("alice", 7_u64)));
/// ```
#[derive(Clone, Debug)]
pub struct KeyPart<'a>(Text<'a>);

#[derive(Clone, Debug)]
enum Text<'a> {
    Borrowed(Part<'a>),
    Boxed(Box<[u8]>),
    Shared(Arc<str>),
}

impl<'a> KeyPart<'a> {
    /// The same part, which borrows nothing.
    pub(crate) fn into_owned(self) -> KeyPart<'static> {
        KeyPart(match self.0 {
            Text::Borrowed(Part::Bytes(bytes)) => Text::Boxed(bytes.into()),
            Text::Borrowed(Part::Number(number)) => Text::Borrowed(Part::Number(number)),
            Text::Borrowed(Part::Negative(number)) => Text::Borrowed(Part::Negative(number)),
            Text::Borrowed(Part::Uuid(bytes)) => Text::Borrowed(Part::Uuid(bytes)),
            Text::Borrowed(Part::Address(address)) => Text::Borrowed(Part::Address(address)),
            Text::Boxed(bytes) => Text::Boxed(bytes),
            Text::Shared(text) => Text::Shared(text),
        })
    }

    /// The part, if it is not owned.
    #[inline]
    pub(crate) fn borrowed(&self) -> Option<Part<'a>> {
        match &self.0 {
            Text::Borrowed(part) => Some(*part),
            Text::Boxed(_) | Text::Shared(_) => None,
        }
    }

    #[inline]
    pub(crate) fn as_part(&self) -> Part<'_> {
        match &self.0 {
            Text::Borrowed(part) => *part,
            Text::Boxed(bytes) => Part::Bytes(bytes),
            Text::Shared(text) => Part::Bytes(text.as_bytes()),
        }
    }
}

impl<'a> From<Part<'a>> for KeyPart<'a> {
    fn from(part: Part<'a>) -> Self {
        KeyPart(Text::Borrowed(part))
    }
}

impl PartialEq for KeyPart<'_> {
    fn eq(&self, other: &KeyPart<'_>) -> bool {
        self.as_part() == other.as_part()
    }
}

impl Eq for KeyPart<'_> {}

/// One part of a key, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Text or any other bytes, as they are.
    Bytes(&'a [u8]),
    /// A number: the same as its decimal text.
    Number(u64),
    /// A negative number: the same as its decimal text.
    Negative(i64),
    /// Sixteen bytes, such as those of a UUID, as they are.
    Uuid([u8; 16]),
    /// An address: the same as its text.
    Address(IpAddr),
}

impl<'a> Part<'a> {
    /// The bytes that the part is in a key, written if need be.
    #[inline(always)]
    fn bytes(self) -> Bytes<'a> {
        match self {
            Part::Bytes(bytes) => Bytes::Borrowed(bytes),
            Part::Number(number) => Bytes::Inline(Inline::with(|text| text.number(number))),
            Part::Negative(number) => Bytes::Inline(Inline::with(|text| text.negative(number))),
            Part::Uuid(bytes) => Bytes::Inline(Inline::with(|text| _ = text.push(&bytes))),
            Part::Address(address) => Bytes::Inline(Inline::with(|text| text.address(address))),
        }
    }

    /// Looks at the bytes that the part is in a key.
    #[inline]
    pub(crate) fn with_bytes<R>(&self, look: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Part::Bytes(bytes) => look(bytes),
            Part::Number(_) | Part::Negative(_) | Part::Uuid(_) | Part::Address(_) => look(self.bytes().as_slice()),
        }
    }
}

/// Bytes that move to the heap only when they outgrow the buffer.
#[derive(Default)]
struct Writer {
    inline: Inline,
    heap: Vec<u8>,
}

impl Writer {
    fn push(&mut self, bytes: &[u8]) {
        if self.heap.is_empty() {
            if self.inline.push(bytes) {
                return;
            }
            self.heap.extend_from_slice(self.inline.as_bytes());
        }
        self.heap.extend_from_slice(bytes);
    }

    fn finish(self) -> Bytes<'static> {
        if self.heap.is_empty() { Bytes::Inline(self.inline) } else { Bytes::Boxed(self.heap.into_boxed_slice()) }
    }
}

/// What can be both a key and a part of one.
macro_rules! part {
    ($($from:ty => |$value:ident| $text:expr),+ $(,)?) => {$(
        impl<'a> From<$from> for KeyPart<'a> {
            #[inline]
            fn from($value: $from) -> Self {
                KeyPart($text)
            }
        }
        impl<'a> From<$from> for Key<'a> {
            #[inline]
            fn from(value: $from) -> Self {
                Key::part(value.into())
            }
        }
    )+};
}

part! {
    &'a str => |text| Text::Borrowed(Part::Bytes(text.as_bytes())),
    &'a String => |text| Text::Borrowed(Part::Bytes(text.as_bytes())),
    &'a Arc<str> => |text| Text::Borrowed(Part::Bytes(text.as_bytes())),
    &'a [u8] => |bytes| Text::Borrowed(Part::Bytes(bytes)),
    String => |text| Text::Boxed(text.into_bytes().into()),
    Vec<u8> => |bytes| Text::Boxed(bytes.into()),
    Arc<str> => |text| Text::Shared(text),
    [u8; 16] => |bytes| Text::Borrowed(Part::Uuid(bytes)),
    IpAddr => |address| Text::Borrowed(Part::Address(address)),
    Ipv4Addr => |address| Text::Borrowed(Part::Address(address.into())),
    Ipv6Addr => |address| Text::Borrowed(Part::Address(address.into())),
}

/// Numbers are their digits: `42_u8` and `"42"` are one key.
macro_rules! number {
    ($part:expr, $($number:ty),+) => {part! { $($number => |number| Text::Borrowed($part(number as _))),+ }};
}

number!(Part::Number, u8, u16, u32, u64, usize);
number!(signed, i8, i16, i32, i64, isize);

fn signed(number: i64) -> Part<'static> {
    u64::try_from(number).map_or(Part::Negative(number), Part::Number)
}

/// The one key of a limiter without keys.
impl From<()> for Key<'_> {
    #[inline]
    fn from((): ()) -> Self {
        Key::borrowed(&[])
    }
}
impl<'a> From<&'a Key<'_>> for Key<'a> {
    #[inline]
    fn from(key: &'a Key<'_>) -> Self {
        Key { bytes: Bytes::Borrowed(key.as_bytes()), parts: key.parts }
    }
}

macro_rules! composite {
    ($($part:ident: $index:tt),+) => {
        impl<'a, $($part: Into<KeyPart<'a>>),+> From<($($part,)+)> for Key<'_> {
            fn from(parts: ($($part,)+)) -> Self {
                Key::of([$(parts.$index.into()),+])
            }
        }
    };
}
composite!(A: 0);
composite!(A: 0, B: 1);
composite!(A: 0, B: 1, C: 2);
composite!(A: 0, B: 1, C: 2, D: 3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_their_own_script_and_see_what_cannot_be_seen() {
        assert_eq!(Key::from("M\u{fc}ller \u{2603}").to_string(), "M\u{fc}ller \u{2603}");
        assert_eq!(Key::from("\u{1b}[31m \u{202e}").to_string(), "\\u{1b}[31m \\u{202e}");
        assert_eq!(Key::from(&b"a\xff\"\n"[..]).to_string(), "a\\xff\\\"\\n");
        assert_eq!(Key::from(("a", "b")).to_string(), "a / b");
    }

    #[test]
    fn a_key_is_on_the_heap_if_it_owns_more_than_there_is_room_for() {
        let long = "alice".repeat(20);
        assert!(Key::from(long.clone()).is_on_heap());
        assert!(!Key::from(&*long).is_on_heap() && !Key::from(7_u64).is_on_heap());
    }
}
