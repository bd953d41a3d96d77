//! Where lines come from: files or any other stream, as they are or
//! compressed by gzip or zstd, which their first bytes tell.

#[cfg(feature = "compressed")]
mod frames;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sources that are read side by side.
pub const MAX_SOURCES: usize = 256;
/// Bytes that are read from a file at a time.
const CHUNK: usize = 1 << 17;

/// A log to read.
pub struct Source {
    name: String,
    open: Box<dyn FnOnce() -> io::Result<Opened> + Send>,
}

type Opened = (Box<dyn Read + Send>, Option<u64>);

impl Source {
    /// A file; `-` is standard input.
    #[must_use]
    pub fn path(path: impl AsRef<Path>) -> Source {
        let path = path.as_ref();
        if path == Path::new("-") {
            return Source::stream("standard input", io::stdin());
        }
        let (name, path): (String, PathBuf) = (path.display().to_string(), path.to_owned());
        let open = move || {
            let file = File::open(path)?;
            let data = file.metadata()?;
            if data.is_dir() {
                return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder: name the files in it"));
            }
            // A pipe has no size.
            let size = Some(data.len()).filter(|_| data.is_file());
            Ok((Box::new(file) as Box<dyn Read + Send>, size))
        };
        Source { name, open: Box::new(open) }
    }

    /// Anything that can be read, by a name.
    pub fn stream(name: impl Into<String>, stream: impl Read + Send + 'static) -> Source {
        Source { name: name.into(), open: Box::new(|| Ok((Box::new(stream), None))) }
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text, decompressed, and how many bytes of how many are read.
    pub(crate) fn open(self) -> io::Result<Text> {
        let (stream, size) = (self.open)()?;
        let read = Arc::new(AtomicU64::new(0));
        let mut stream = Counted { stream, read: Arc::clone(&read) };
        let mut magic = Vec::with_capacity(4);
        stream.by_ref().take(4).read_to_end(&mut magic)?;
        let compression = Compression::of(&magic);
        let stream = BufReader::with_capacity(CHUNK, io::Cursor::new(magic).chain(stream));
        let text: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(stream),
            #[cfg(feature = "compressed")]
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stream)),
            #[cfg(feature = "compressed")]
            Compression::Zstd => Box::new(frames::Frames::new(stream)),
            #[cfg(not(feature = "compressed"))]
            Compression::Gzip | Compression::Zstd => {
                let what = "it is compressed, which this program was built not to read: unpack it, such as by zcat or \
                            zstdcat, and name - for standard input, or build with the feature compressed";
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
        };
        Ok(Text { name: self.name, text, compression, size, read })
    }
}

/// How a log is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    None,
    /// By gzip, in one member or several.
    Gzip,
    /// By zstd, in one frame or several.
    Zstd,
}

impl Compression {
    fn of(magic: &[u8]) -> Compression {
        match magic {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            // Any frame, or one that is to be skipped.
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// A source that is open.
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) text: Box<dyn Read + Send>,
    pub(crate) compression: Compression,
    pub(crate) size: Option<u64>,
    read: Arc<AtomicU64>,
}

impl Text {
    /// Bytes of the source, as it is stored, that are read so far.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }
}

struct Counted {
    stream: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(all(test, feature = "compressed"))]
mod tests {
    use std::io::Write;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).and_then(|()| encoder.finish()).expect("a vector takes all")
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    fn read(bytes: Vec<u8>) -> (Compression, Vec<u8>, Option<io::Error>) {
        let mut text = Source::stream("test", io::Cursor::new(bytes)).open().expect("it opens");
        let mut all = Vec::new();
        let error = text.text.read_to_end(&mut all).err();
        (text.compression, all, error)
    }

    #[test]
    fn compressed_logs_of_one_or_more_frames_are_read() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|number| number.wrapping_mul(number).to_le_bytes()).collect();
        for (compress, expected) in [
            ((|text| text.to_vec()) as fn(&[u8]) -> Vec<u8>, Compression::None),
            (gzip, Compression::Gzip),
            (zstd, Compression::Zstd),
        ] {
            let (first, second) = text.split_at(300_001);
            for bytes in [compress(&text), [compress(first), compress(second)].concat()] {
                let (compression, all, error) = read(bytes);
                assert_eq!(compression, expected);
                assert!(error.is_none() && all == text, "{expected:?}: {} bytes, {error:?}", all.len());
            }
        }
        assert_eq!(read(Vec::new()).1, b"");
    }

    #[test]
    fn frames_that_are_to_be_skipped_are() {
        let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9][..], &zstd(b"text")].concat();
        let (compression, all, error) = read([skipped.clone(), skipped].concat());
        assert!(error.is_none(), "{error:?}");
        assert_eq!((compression, &*all), (Compression::Zstd, &b"texttext"[..]));
    }

    #[test]
    fn a_stream_that_breaks_off_is_an_error_after_what_could_be_read() {
        let text = vec![b'a'; 1_000_000];
        for compress in [gzip, zstd] {
            let whole = compress(&text);
            let (_, all, error) = read(whole[..whole.len() - 3].to_vec());
            assert!(error.is_some() && text.starts_with(&all));
        }
    }

    #[test]
    fn a_window_of_gigabytes_is_refused() {
        // A frame whose header asks for a window of two gigabytes.
        let (_, all, error) = read(vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00]);
        assert!(all.is_empty() && error.is_some());
    }
}
