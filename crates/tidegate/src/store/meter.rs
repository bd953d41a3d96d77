//! A limit with a name, made ready to decide.

use std::fmt;

use super::erased::erase;
use super::meter_kernel::MeterKernel;
use crate::fnv::Fnv;
use crate::kernel::Kernel;
use crate::limit::{Limit, LimitKernel};
use crate::name::Name;

/// A named limit, or a kernel of the user's own, with all that can be
/// computed beforehand.
///
/// The state of a key belongs to the name *and* the limit: the same key
/// under two meters is two states.
#[derive(Clone)]
pub struct Meter {
    name: Name,
    capacity: u64,
    /// Sets the keys of this meter apart from those of every other.
    identity: u64,
    limit: Option<Limit>,
    kernel: MeterKernel,
}

impl Meter {
    /// A limit under a name.
    #[must_use]
    pub fn new(name: Name, limit: Limit) -> Meter {
        let kernel = match limit.kernel() {
            LimitKernel::Bucket(bucket) => MeterKernel::Bucket(bucket),
            LimitKernel::Window(window) => MeterKernel::Window(window),
            LimitKernel::Log(log) => MeterKernel::Heap(erase(log)),
        };
        let identity = identity(name, &limit.to_string());
        Meter { name, capacity: limit.capacity(), identity, limit: Some(limit), kernel }
    }

    /// A limit under its own words, such as `100/min`.
    #[must_use]
    pub fn unnamed(limit: Limit) -> Meter {
        // Only a process that has configured 100,000 other names gets the
        // bare word.
        let name = Name::configured(&limit.to_string()).unwrap_or(Name::literal("limit"));
        Meter::new(name, limit)
    }

    /// An algorithm of the user's own under a name, which no other kernel of
    /// the same type may have on the same store.
    #[must_use]
    pub fn custom<K: Kernel>(name: Name, kernel: K) -> Meter {
        let capacity = kernel.capacity();
        let identity = identity(name, std::any::type_name::<K>());
        Meter { name, capacity, identity, limit: None, kernel: MeterKernel::Heap(erase(kernel)) }
    }

    /// The name that decisions carry.
    #[must_use]
    #[inline]
    pub fn name(&self) -> Name {
        self.name
    }

    /// The largest cost that can pass at once.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The limit, unless the kernel is a custom one.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }

    #[inline]
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    #[inline]
    pub(crate) fn kernel(&self) -> &MeterKernel {
        &self.kernel
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Meter");
        shown.field("name", &self.name);
        match &self.limit {
            Some(limit) => shown.field("limit", &limit.to_string()),
            None => shown.field("kernel", &"custom"),
        };
        shown.finish()
    }
}

/// The same in every process. It is not keyed: only those who write the
/// policy choose what goes in.
fn identity(name: Name, limit: &str) -> u64 {
    let mut hash = Fnv::default();
    hash.write(&(name.as_str().len() as u64).to_le_bytes());
    hash.write(name.as_str().as_bytes());
    hash.write(limit.as_bytes());
    hash.finish()
}
