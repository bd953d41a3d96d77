//! A body that gives back what its request holds when it has ended.

use std::fmt;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::hold::Hold;
use crate::tally::{BodyEnd, Tally};

pin_project! {
    /// The body of a response of a [`Reserve`](crate::Reserve): the frames of the inner body,
    /// unchanged and as they come.
    pub struct ReservedBody<B> {
        #[pin]
        body: B,
        held: Option<UntilEnd>,
    }
}

/// What the request holds until the body has ended.
struct UntilEnd {
    hold: Option<Box<dyn Hold>>,
    tally: Option<Box<dyn Tally>>,
}

impl<B: Body> ReservedBody<B> {
    pub(super) fn new(body: B, hold: Option<Box<dyn Hold>>, tally: Option<Box<dyn Tally>>) -> Self {
        let mut held = hold.map(|hold| UntilEnd { hold: Some(hold), tally });
        if body.is_end_stream() {
            end(&mut held, BodyEnd::Complete);
        }
        ReservedBody { body, held }
    }
}

impl<B: Body> Body for ReservedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(held) = this.held {
                    held.see(frame);
                }
                // A server need not ask for what comes after the last frame.
                if this.body.is_end_stream() {
                    end(this.held, BodyEnd::Complete);
                }
            }
            Some(Err(_)) => end(this.held, BodyEnd::Cut),
            None => end(this.held, BodyEnd::Complete),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: fmt::Debug> fmt::Debug for ReservedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_held = self.held.is_some();
        f.debug_struct("ReservedBody").field("body", &self.body).field("is_held", &is_held).finish()
    }
}

/// Gives back what is held, if that was not done before.
fn end(held: &mut Option<UntilEnd>, end: BodyEnd) {
    if let Some(mut held) = held.take() {
        held.give_back(end);
    }
}

impl UntilEnd {
    fn see<D: Buf>(&mut self, frame: &Frame<D>) {
        if let Some(hold) = &mut self.hold {
            hold.renew_if_due();
        }
        let Some(tally) = &mut self.tally else { return };
        if let Some(trailers) = frame.trailers_ref() {
            tally.trailers(trailers);
        }
        if frame.data_ref().is_some_and(|data| !show(data, &mut **tally)) {
            // It would count too little.
            self.tally = None;
        }
    }

    fn give_back(&mut self, end: BodyEnd) {
        let Some(hold) = self.hold.take() else { return };
        match self.tally.take().and_then(|mut tally| tally.spent(end)) {
            Some(spent) => hold.settle(spent),
            None => drop(hold),
        }
    }
}

impl Drop for UntilEnd {
    fn drop(&mut self) {
        // A tally that panics beside another panic would end the process: then only permits are given back.
        if !thread::panicking() {
            self.give_back(BodyEnd::Cut);
        }
    }
}

/// The pieces that data of a frame may have: nearly all has one.
const MAX_PIECES: usize = 16;

/// Shows data without taking it; false if not all of it can be seen in this way.
fn show(data: &impl Buf, tally: &mut dyn Tally) -> bool {
    let mut pieces = [IoSlice::new(&[]); MAX_PIECES];
    let count = data.chunks_vectored(&mut pieces);
    pieces[..count].iter().for_each(|piece| tally.data(piece));
    pieces[..count].iter().map(|piece| piece.len()).sum::<usize>() == data.remaining()
}
