//! Sources as they are read: side by side, in the order of their times.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::Micros;

use crate::batch::Batch;
use crate::draft::{Draft, Fault, shown};
use crate::error::ReplayError;
use crate::format::{Format, Parsed, Parser};
use crate::lines::{Line, Lines};
use crate::mapping::Plan;
use crate::report::{Broken, MAX_EXAMPLES, Report, SourceReport};
use crate::source::Source;

/// How far a replay has come.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes of the sources, as they are stored.
    pub read: u64,
    /// Of how many, if all of the sources have a size.
    pub size: Option<u64>,
    /// Lines that were read.
    pub lines: u64,
    /// Whether all is read, and the smallest limits are searched for.
    pub searches: bool,
}

/// A source that is being read.
pub(crate) struct Input {
    report: SourceReport,
    lines: Lines<Box<dyn io::Read + Send>>,
    parser: Parser,
    size: Option<u64>,
    read: Arc<AtomicU64>,
    line: u64,
    /// The time of the line that was read last.
    reached: Micros,
    is_over: bool,
}

impl Input {
    pub(crate) fn open(source: Source, format: Option<Format>, plan: &Plan) -> Result<Input, ReplayError> {
        let name = source.name().to_owned();
        let text = source.open().map_err(|source| ReplayError::Unreadable { name: name.clone(), source })?;
        let (read, size, compression) = (text.counter(), text.size, text.compression);
        let mut lines = Lines::new(text.text);
        let beginning = lines.beginning();
        let is_empty = beginning.trim_ascii().is_empty();
        let format = match format.or_else(|| Format::detect(beginning)).or_else(|| Format::of_name(&name)) {
            Some(format) => format,
            None if is_empty => Format::Combined,
            None => {
                let line = beginning.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
                return Err(ReplayError::UnknownFormat { name, line: shown(line.unwrap_or_default()) });
            }
        };
        let parser = Parser::new(format, plan, beginning)?;
        let report = SourceReport { name: text.name, format, compression, lines: 0, broken: 0, problem: None };
        Ok(Input { report, lines, parser, size, read, line: 0, reached: Micros::ZERO, is_over: false })
    }
}

/// All sources, read in the order of their times.
pub(crate) struct Inputs {
    inputs: Vec<Input>,
    broken: Vec<Broken>,
    lines: u64,
}

impl Inputs {
    pub(crate) fn new(inputs: Vec<Input>) -> Inputs {
        Inputs { inputs, broken: Vec::new(), lines: 0 }
    }

    /// Fills the batch, and says whether there is more to come.
    pub(crate) fn read(&mut self, plan: &Plan, draft: &mut Draft, batch: &mut Batch) -> bool {
        loop {
            // The one that is furthest behind goes on until it has overtaken
            // the next: so sources are merged, whatever order they came in.
            let mut open = self.inputs.iter().enumerate().filter(|(_, input)| !input.is_over);
            let Some((mut behind, first)) = open.next() else { return false };
            let (mut least, mut next) = (first.reached, Micros::MAX);
            for (number, input) in open {
                if input.reached < least {
                    (behind, least, next) = (number, input.reached, least);
                } else {
                    next = next.min(input.reached);
                }
            }
            if self.read_from(behind, next, (plan, draft), batch) {
                return true;
            }
        }
    }

    /// Reads from one source until it has passed an instant or the batch is
    /// full, and says whether it is.
    fn read_from(
        &mut self,
        number: usize,
        until: Micros,
        (plan, draft): (&Plan, &mut Draft),
        batch: &mut Batch,
    ) -> bool {
        let input = &mut self.inputs[number];
        loop {
            let place = (number as u32, input.line + 1);
            let outcome = match input.lines.next() {
                Ok(None) => {
                    input.is_over = true;
                    return false;
                }
                Ok(Some(Line::Whole(line))) => {
                    let parsed = input.parser.parse(line, (plan, place), (&mut *draft, &mut *batch));
                    parsed.map_err(|fault| (fault, shown(line)))
                }
                Ok(Some(Line::TooLong(line))) => Err((Fault::TooLong, shown(line))),
                Err(error) => {
                    input.report.problem = Some(error.to_string());
                    input.is_over = true;
                    match input.lines.rest() {
                        b"" => return false,
                        rest => Err((Fault::CutOff, shown(rest))),
                    }
                }
            };
            input.line += 1;
            match outcome {
                Ok(Parsed::Nothing) => continue,
                Ok(Parsed::Record(at)) => input.reached = input.reached.max(at),
                Err((fault, text)) => {
                    input.report.broken += 1;
                    if self.broken.len() < MAX_EXAMPLES {
                        let (source, line) = (input.report.name.clone(), place.1);
                        self.broken.push(Broken { source, line, reason: fault.to_string(), text });
                    }
                }
            }
            input.report.lines += 1;
            self.lines += 1;
            if input.is_over {
                return false;
            }
            if batch.is_full() {
                return true;
            }
            if input.reached > until {
                return false;
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.inputs.iter().map(|input| input.report.name.clone()).collect()
    }

    pub(crate) fn progress(&self, searches: bool) -> Progress {
        let read = self.inputs.iter().map(|input| input.read.load(Ordering::Relaxed)).sum();
        let size = self.inputs.iter().map(|input| input.size).sum();
        Progress { read, size, lines: self.lines, searches }
    }

    pub(crate) fn tell(self, report: &mut Report) {
        report.sources = self.inputs.into_iter().map(|input| input.report).collect();
        report.lines = report.sources.iter().map(|source| source.lines).sum();
        report.broken = report.sources.iter().map(|source| source.broken).sum();
        report.broken_examples = self.broken;
    }
}
