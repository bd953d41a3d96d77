//! The rate limit service of limitador beside Envoy's: to look, to report, and to reserve and commit.
//!
//! The first two are Envoy's own request with another verb, and are decided as it is. A reservation is one of this
//! server's, as over HTTP: a charge under an id, which a commit settles. What has no such id is reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use tidegate::CheckError;
use tonic::{Request, Response, Status};

use super::answer::whole::{Whole, decision};
use super::answer::{self, Client, Purpose};
use super::messages::kuadrant_service_server::RateLimitService;
use super::messages::rate_limit_response::Code;
use super::messages::{
    CommitRequest, CommitResponse, RateLimitRequest, RateLimitResponse, ReserveRequest, ReserveResponse,
};
use super::problem::Problem;
use crate::ask::call::{Call, MAX_TTL_MS};
use crate::run::protocol::Protocol;
use crate::wire::app::App;

/// How long a reservation can be committed, if its own time is shorter: what is reported instead comes on top of it.
const MIN_REMEMBERED: Duration = Duration::from_secs(600);

pub(super) struct Kuadrant(pub(super) Arc<App>);

#[tonic::async_trait]
impl RateLimitService for Kuadrant {
    async fn check_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.answer(request, Purpose::Check).await
    }

    async fn report(&self, request: Request<RateLimitRequest>) -> Result<Response<RateLimitResponse>, Status> {
        self.answer(request, Purpose::Report).await
    }

    async fn reserve(&self, request: Request<ReserveRequest>) -> Result<Response<ReserveResponse>, Status> {
        let request = request.into_inner();
        // As there, and unlike in Envoy's service.
        if request.domain.is_empty() {
            return Ok(Response::new(ReserveResponse { code: Code::Unknown.into(), ..ReserveResponse::default() }));
        }
        self.timed(reserve(&self.0, &request)).await
    }

    async fn commit(&self, request: Request<CommitRequest>) -> Result<Response<CommitResponse>, Status> {
        let request = request.into_inner();
        self.timed(commit(&self.0, &request)).await
    }
}

impl Kuadrant {
    async fn answer(
        &self,
        request: Request<RateLimitRequest>,
        purpose: Purpose,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let client = Client::of(request.extensions());
        let request = request.into_inner();
        if request.domain.is_empty() {
            let overall_code = Code::Unknown.into();
            return Ok(Response::new(RateLimitResponse { overall_code, ..RateLimitResponse::default() }));
        }
        self.timed(answer::answer_to_the_end(&self.0, &client, request, purpose)).await
    }

    async fn timed<T>(&self, answered: impl Future<Output = Result<T, Problem>>) -> Result<Response<T>, Status> {
        let began = Instant::now();
        let answered = answered.await;
        self.0.records.metrics.answered(Protocol::Grpc, began.elapsed());
        answered.map(Response::new).map_err(Status::from)
    }
}

async fn reserve(app: &App, request: &ReserveRequest) -> Result<ReserveResponse, Problem> {
    let nothing_held = |code: Code| ReserveResponse { code: code.into(), reservation_id: String::new() };
    if app.engine.only_files_limit_envoy() {
        return Ok(nothing_held(Code::Ok));
    }
    let whole = Whole::new(&request.domain, &request.descriptors)?;
    let call = if request.amount == 0 { Call::Peek } else { Call::Reserve };
    let id = new_id();
    let asked = whole.request().id(&id).lasts(lasts(request.ttl.as_ref()));
    let decided = decision(app, call.verb(), call.of(asked, Some(request.amount), std::iter::empty())).await?;
    Ok(match decided {
        Some(decision) if decision.is_allowed() => {
            // Without a limit there is nothing to correct.
            let is_held = call == Call::Reserve && !decision.is_unlimited();
            ReserveResponse { code: Code::Ok.into(), reservation_id: if is_held { id } else { String::new() } }
        }
        Some(_) | None => nothing_held(Code::OverLimit),
    })
}

async fn commit(app: &App, request: &CommitRequest) -> Result<CommitResponse, Problem> {
    let whole = Whole::new(&request.domain, &request.descriptors)?;
    if app.engine.only_files_limit_envoy() {
        return Ok(CommitResponse::default());
    }
    let actual = Some(request.actual_amount);
    if !request.reservation_id.is_empty() {
        let settled = Call::Settle.of(whole.request().id(&request.reservation_id), actual, std::iter::empty());
        match decision(app, Call::Settle.verb(), settled).await {
            Ok(_) => return Ok(CommitResponse { reservation_released: true }),
            Err(Problem::Check(CheckError::NotReserved { .. } | CheckError::IdReused { .. })) => {}
            Err(problem) => return Err(problem),
        }
    }
    let reported = Call::Report.of(whole.request(), actual, std::iter::empty());
    decision(app, Call::Report.verb(), reported).await?;
    Ok(CommitResponse { reservation_released: false })
}

/// How long an id is remembered.
fn lasts(ttl: Option<&prost_types::Duration>) -> Duration {
    let ttl = ttl.and_then(|ttl| Duration::try_from(*ttl).ok()).unwrap_or_default();
    ttl.clamp(MIN_REMEMBERED, Duration::from_millis(MAX_TTL_MS))
}

/// An id that no caller can guess: it is all that a commit has to show.
fn new_id() -> String {
    let mut bytes = [0; 16];
    // The system always has random bytes by now; without, ids of different keys are apart all the same.
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
