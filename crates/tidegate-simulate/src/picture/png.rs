//! A picture as PNG, on a light background: where an SVG cannot be shown.
//!
//! The shapes are boxes and straight lines, so there is nothing to smooth;
//! letters come smoothed from a font that is part of the program.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, RasterizedChar, get_raster, get_raster_width};

use super::{Anchor, Ink, Picture, Shape, WIDTH};

/// Pixels along each side of a unit, for screens that have many.
const SCALE: u32 = 2;

/// The letters: as high as a line, twice 12.
const LETTERS: RasterHeight = RasterHeight::Size24;

/// Where letters stand, from the top of their box.
const BASELINE: u32 = 19;

/// Why a picture cannot be written as PNG.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be written as PNG")]
pub struct PngError(#[from] png::EncodingError);

impl Picture {
    /// The picture as the bytes of a PNG file.
    ///
    /// # Errors
    /// If it is too large to be one, which no picture of at most
    /// [`MAX_LIMITS`](crate::Scenario::MAX_LIMITS) panels is.
    pub fn to_png(&self) -> Result<Vec<u8>, PngError> {
        let mut canvas = Canvas::new(WIDTH * SCALE, self.height * SCALE);
        self.shapes.iter().for_each(|shape| canvas.draw(shape));
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, canvas.width, canvas.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&canvas.pixels)?;
        writer.finish()?;
        Ok(bytes)
    }
}

struct Canvas {
    width: u32,
    height: u32,
    /// Red, green and blue of each.
    pixels: Vec<u8>,
}

fn colour(ink: Ink) -> [u8; 3] {
    let [_, red, green, blue] = ink.colours()[0].to_be_bytes();
    [red, green, blue]
}

impl Canvas {
    fn new(width: u32, height: u32) -> Canvas {
        let pixels = colour(Ink::Paper).repeat((width * height) as usize);
        Canvas { width, height, pixels }
    }

    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Box { ink, x, y, width, height } => {
                self.fill(*ink, (x * SCALE, y * SCALE), (width * SCALE, height * SCALE));
            }
            Shape::Line { ink, from, to } => self.line(*ink, *from, *to),
            Shape::Area { ink, from, steps } => {
                let mut from = *from;
                for step in steps {
                    let size = ((step.to - from) * SCALE, (step.bottom - step.top) * SCALE);
                    self.fill(*ink, (from * SCALE, step.top * SCALE), size);
                    from = step.to;
                }
            }
            Shape::Text { ink, x, y, anchor, words } => self.text(*ink, (x * SCALE, y * SCALE), *anchor, words),
        }
    }

    /// A line along or down, as wide as a unit.
    fn line(&mut self, ink: Ink, from: (u32, u32), to: (u32, u32)) {
        let (x, y) = (from.0.min(to.0) * SCALE, from.1.min(to.1) * SCALE);
        let (width, height) = (from.0.abs_diff(to.0) * SCALE, from.1.abs_diff(to.1) * SCALE);
        // Where lines meet at a corner, there is no notch.
        let (x, y) = (x.saturating_sub(SCALE / 2), y.saturating_sub(SCALE / 2));
        let thick = if ink == Ink::Edge { 1 } else { SCALE };
        if ink != Ink::Limit {
            return self.fill(ink, (x, y), (width.max(thick), height.max(thick)));
        }
        let (dash, gap) = (6 * SCALE, 4 * SCALE);
        for start in (0..width).step_by((dash + gap) as usize) {
            self.fill(ink, (x + start, y), (dash.min(width - start), thick));
        }
    }

    fn fill(&mut self, ink: Ink, (x, y): (u32, u32), (width, height): (u32, u32)) {
        for y in y..(y + height).min(self.height) {
            for x in x..(x + width).min(self.width) {
                self.mix(ink, (x, y), u8::MAX);
            }
        }
    }

    fn text(&mut self, ink: Ink, (x, y): (u32, u32), anchor: Anchor, words: &str) {
        let weight = match ink {
            Ink::Title | Ink::Worst => FontWeight::Bold,
            Ink::Paper | Ink::Text | Ink::Admitted | Ink::Refused | Ink::Leaving | Ink::Within => FontWeight::Regular,
            Ink::Above | Ink::Burst | Ink::Edge | Ink::Rule | Ink::Limit => FontWeight::Regular,
        };
        let step = get_raster_width(weight, LETTERS) as u32;
        let width = step * words.chars().count() as u32;
        let mut x = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x.saturating_sub(width / 2),
            Anchor::End => x.saturating_sub(width),
        };
        for letter in words.chars() {
            // The font has Latin letters; any other shows as a question mark.
            let drawn = get_raster(letter, weight, LETTERS).or_else(|| get_raster('?', weight, LETTERS));
            if let Some(drawn) = drawn {
                self.letter(ink, (x, y.saturating_sub(BASELINE)), &drawn);
            }
            x += step;
        }
    }

    fn letter(&mut self, ink: Ink, (x, y): (u32, u32), letter: &RasterizedChar) {
        for (row, y) in letter.rows().zip(y..) {
            for (strength, x) in row.iter().zip(x..) {
                self.mix(ink, (x, y), *strength);
            }
        }
    }

    fn mix(&mut self, ink: Ink, (x, y): (u32, u32), strength: u8) {
        if x >= self.width || y >= self.height {
            return;
        }
        let start = ((y * self.width + x) * 3) as usize;
        for (pixel, ink) in self.pixels[start..start + 3].iter_mut().zip(colour(ink)) {
            let (old, new, strength) = (u32::from(*pixel), u32::from(ink), u32::from(strength));
            *pixel = ((old * (255 - strength) + new * strength) / 255) as u8;
        }
    }
}
