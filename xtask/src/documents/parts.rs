//! What the documents have besides fenced blocks, by name: each needs a row, as `D0 metric NAME`.

/// What a document has of one kind.
pub(super) struct Parts {
    pub(super) document: &'static str,
    /// The word before a name in an id.
    pub(super) kind: &'static str,
    pub(super) names: &'static [&'static str],
}

/// The kind of a scenario in the prose: its name follows without a space, and may have several rows.
pub(super) const SCENARIO: &str = "§";

const fn parts(
    document: &'static str,
    kind: &'static str,
    names: &'static [&'static str],
) -> Parts {
    Parts {
        document,
        kind,
        names,
    }
}

/// Everything that needs a row.
pub(super) const ALL: [Parts; 17] = [
    parts("D0", "table", &["1", "2", "3", "4"]),
    parts(
        "D0",
        "metric",
        &[
            "idempotency.request.total",
            "idempotency.request.replayed",
            "idempotency.request.duration_ms",
            "idempotency.cache_hit_rate",
            "idempotency.storage.operation.total",
            "idempotency.storage.operation.duration_ms",
            "idempotency.storage.error_rate",
            "idempotency.storage.connection_pool.active",
            "idempotency.storage.connection_pool.exhausted",
            "idempotency.lock.acquired.total",
            "idempotency.lock.wait_time_ms",
            "idempotency.lock.timeout.total",
            "idempotency.lock.held_duration_ms",
            "idempotency.lock.abandoned.total",
            "idempotency.circuit_breaker.state",
            "idempotency.circuit_breaker.opened.total",
            "idempotency.circuit_breaker.rejected_requests.total",
            "idempotency.conflict.total",
            "idempotency.conflict.retry_after_conflict",
            "idempotency.key.expired.total",
            "idempotency.key.active_count",
            "idempotency.key.average_lifetime_ms",
        ],
    ),
    parts(
        "D0",
        "log",
        &[
            "idempotency.lock.attempt",
            "idempotency.cache.lookup",
            "idempotency.replay",
            "idempotency.processed",
            "idempotency.key.expired",
            "idempotency.lock.contention",
            "idempotency.circuit_breaker.opened",
            "idempotency.storage.slow",
            "idempotency.lock.abandoned",
            "idempotency.conflict",
            "idempotency.storage.error",
            "idempotency.lock.timeout",
            "idempotency.cache.oversized",
        ],
    ),
    parts(
        "D0",
        "audit",
        &[
            "idempotency.key.created",
            "idempotency.replay",
            "idempotency.conflict",
            "idempotency.key.expired",
            "idempotency.lock.contention",
        ],
    ),
    parts(
        "D0",
        "alert",
        &[
            "Storage Unavailable",
            "Circuit Breaker Open",
            "Excessive Lock Timeouts",
            "Idempotency Conflict Storm",
            "High Replay Rate",
            "Storage Latency Spike",
            "Connection Pool Exhaustion",
            "Abandoned Locks",
            "Key Expiration Rate",
            "Active Key Count Growth",
            "Lock Contention by Intake",
        ],
    ),
    parts(
        "D0",
        SCENARIO,
        &[
            "1.2", "1.3", "4.5.4", "8.2.3", "8.2.4", "9.3.1", "9.4.2", "9.4.3", "9.5",
        ],
    ),
    parts("D1", "table", &["1", "2", "3"]),
    parts(
        "D1",
        "metric",
        &[
            "Idempotency key hit/miss ratio",
            "Storage backend latency",
            "Lock contention rate",
            "Lock timeout rate",
            "Key expiration rate and storage utilization",
            "Request body mismatch rate",
        ],
    ),
    parts("D1", SCENARIO, &["Key Scoping", "Edge Cases", "Task 6"]),
    parts(
        "D2",
        "metric",
        &["Idempotency Hit Rate", "Store Size", "Key Age Distribution"],
    ),
    parts("D2", "log", &["Duplicate submission detected"]),
    parts("D2", SCENARIO, &["Troubleshooting", "Browser Navigation"]),
    parts("D3", "table", &["1"]),
    parts(
        "D3",
        "metric",
        &[
            "idempotency.cache_hit_rate",
            "idempotency.concurrent_requests.count",
            "idempotency.cache_size.entries",
            "idempotency.stale_keys.count",
        ],
    ),
    parts(
        "D3",
        "log",
        &["idempotency_cache_hit", "idempotency_concurrent_request"],
    ),
    parts(
        "D4",
        "metric",
        &[
            "idem.requests_total",
            "idem.execution_ms_bucket",
            "idem.keys_active",
        ],
    ),
    parts(
        "D4",
        SCENARIO,
        &[
            "5", "6.2", "6.3", "6.4", "8", "9", "11", "12", "14.1", "14.2", "14.3", "14.4", "14.5",
            "14.6",
        ],
    ),
];
