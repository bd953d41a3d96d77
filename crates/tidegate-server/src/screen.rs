//! What people look at: the dashboard, `tidegate top`, and the admin API behind both.

pub(crate) mod admin;
pub(crate) mod dashboard;
pub(crate) mod history;
pub(crate) mod live;
pub(crate) mod recent_requests;
pub(crate) mod watchers;
