//! zstd, frame by frame.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// A frame without content.
const EMPTY: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00];

/// All frames of a stream, one after the other.
pub(super) struct Frames<R> {
    stream: R,
    decoder: FrameDecoder,
    is_open: bool,
}

impl<R: BufRead> Frames<R> {
    pub(super) fn new(stream: R) -> Frames<R> {
        let mut decoder = FrameDecoder::new();
        // The decoder looks at the size of a window (100 MiB at most) from its
        // second frame on: this is the first.
        let opened = decoder.reset(EMPTY);
        debug_assert!(opened.is_ok(), "{opened:?}");
        Frames { stream, decoder, is_open: false }
    }

    /// Goes to the next frame, if there is one.
    fn open(&mut self) -> io::Result<bool> {
        loop {
            if self.stream.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.stream) {
                Ok(()) => {
                    self.is_open = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut self.stream.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.is_open = false;
        let told = self.decoder.get_checksum_from_data();
        if told.is_some() && told != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum of a zstd frame is wrong"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_open && self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.is_open && self.decoder.is_finished() {
                self.close()?;
            }
            if self.is_open {
                let blocks = BlockDecodingStrategy::UptoBytes(buffer.len());
                self.decoder.decode_blocks(&mut self.stream, blocks).map_err(io::Error::other)?;
            } else if !self.open()? {
                return Ok(0);
            }
        }
    }
}
