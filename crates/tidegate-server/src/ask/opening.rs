//! The store that the settings name, opened.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate::store::Meter;
use tidegate::{Limit, Limiter, MemoryStore};
use tidegate_redis::{Certificates, ConnectError, Eviction, RedisStore, Servers};
use tracing::warn;

use crate::ask::inline::INLINE_RULE;
use crate::ask::snapshot::{self, StatesError};
use crate::ask::store::AnyStore;
use crate::run::causes::in_full;
use crate::settings::{Settings, StoreChoice};

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store's URL cannot be used.
    #[error("the store cannot be used")]
    Store(#[from] ConnectError),
    /// The states of the last run cannot be read.
    #[error(transparent)]
    States(#[from] StatesError),
    /// A snapshot of states that are not kept here.
    #[error("--snapshot is for the memory store: Redis keeps the states itself")]
    SnapshotOfRedis,
    /// Certificates for a store that has no use for them.
    #[error("--store-tls-ca, --store-tls-certificate and --store-tls-key are for a --store of rediss://")]
    CertificatesForMemory,
    /// A certificate without its key, or the other way round.
    #[error("a certificate and its key go together: give both --store-tls-certificate and --store-tls-key")]
    HalfCertificate,
    /// A file of TLS cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Opens the store, and meets it if it is another process.
pub(crate) async fn open(settings: &Settings) -> Result<AnyStore, OpenError> {
    let certificates = certificates(settings)?;
    match &settings.store {
        StoreChoice::Memory if certificates.is_some() => Err(OpenError::CertificatesForMemory),
        StoreChoice::Memory => {
            let builder = MemoryStore::builder().max_keys(settings.max_keys);
            Ok(snapshot::restore(builder, settings.snapshot.as_deref())?.into())
        }
        StoreChoice::Url(_) if settings.snapshot.is_some() => Err(OpenError::SnapshotOfRedis),
        StoreChoice::Url(url) => {
            let servers = match certificates {
                Some(certificates) => Servers::parse_with_certificates(url, certificates)?,
                None => Servers::parse(url)?,
            };
            let deadline = Duration::from_millis(settings.store_deadline_ms);
            let store = RedisStore::builder(servers).prefix(&settings.store_prefix).deadline(deadline).build()?;
            meet(&store).await;
            Ok(store.into())
        }
    }
}

/// What the files of TLS hold, if there are any.
fn certificates(settings: &Settings) -> Result<Option<Certificates>, OpenError> {
    let read = |path: &Path| {
        let path = path.to_owned();
        tidegate_config::read_file(&path).map_err(|error| OpenError::Unreadable { path, source: error.into() })
    };
    let Settings { store_tls_ca, store_tls_certificate, store_tls_key, .. } = settings;
    let mut certificates = match store_tls_ca {
        Some(path) => Some(Certificates::default().authority(read(path)?)),
        None => None,
    };
    match (store_tls_certificate, store_tls_key) {
        (None, None) => {}
        (Some(certificate), Some(key)) => {
            certificates = Some(certificates.unwrap_or_default().client(read(certificate)?, read(key)?));
        }
        (Some(_), None) | (None, Some(_)) => return Err(OpenError::HalfCertificate),
    }
    Ok(certificates)
}

/// Asks a store something that changes nothing, so that its connection is
/// there before the first request. If it is away, it is: it may come.
async fn meet(store: &RedisStore) {
    let meter = Meter::new(INLINE_RULE, Limit::per_second(1));
    if let Ok(limiter) = Limiter::with_store(meter, store.clone())
        && let Err(error) = limiter.peek_async(()).await
    {
        warn!(error = in_full(&error), "the store does not answer yet");
    }
    if let Some(Eviction { memory, policy, .. }) = store.evictions().await.first() {
        warn!(
            maxmemory = memory,
            "maxmemory-policy" = policy,
            "the store throws keys away when its memory is full, and their limits begin anew: set maxmemory-policy noeviction"
        );
    }
}
