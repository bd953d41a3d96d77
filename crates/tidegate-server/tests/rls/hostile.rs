//! Requests that are invalid, damaged or too much: each gets a named error, and the server goes on.

use super::*;

#[tokio::test]
async fn invalid_requests_are_named_and_harm_no_other() {
    let mut running = start(|settings| settings.max_body = 4_096).await;
    let many: Vec<&str> = vec!["user=a"; 101];
    for (invalid, word) in [
        (request("", &["user=a"]), "domain"),
        (request("files", &[]), "descriptors"),
        (request("files", &many), "too many"),
        (request("files", &["user=a @10/0"]), "unit"),
        (request("files", &["user=a @10/99"]), "unit"),
        (request("edge", &["user=a @10/-1"]), "unit"),
    ] {
        let status = running.client.ask(invalid).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(word), "{status:?}");
    }
    let long = "x".repeat(10_000);
    let status = running.client.ask(request("files", &[&format!("user={long}")])).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    let address = running.server.grpc_socket().unwrap();
    for bytes in [
        &b"\x00\x00\x00\x00\x03\xff\xff\xff"[..],
        b"\x00\x00\x00\x00\x09\x0a\x7fedge",
        b"\x01\x00\x00\x00\x01x",
        b"\x07\x00\x00\x00\x00",
        b"\x00\xff\xff\xff\xff",
        b"\x00\x00",
        b"",
    ] {
        let status = client::raw(address, client::METHOD, bytes).await;
        assert!(status.is_some_and(|status| status != 0), "{bytes:?}: {status:?}");
    }
    let impatient = start(|settings| settings.body_seconds = 1).await;
    let slow = client::begin(impatient.server.grpc_socket().unwrap(), client::METHOD);
    assert_eq!(slow.await, Some(4), "a message that never ends is not waited for");
    assert_eq!(client::raw(address, "/no.such.Service/Method", b"").await, Some(12));
    assert_eq!(running.left("files", &["user=a"]).await, (true, vec![2]), "and nothing was charged");
}

#[tokio::test]
async fn a_message_beyond_the_budget_of_bytes_is_refused_and_small_ones_pass() {
    let mut running = start(|settings| settings.max_buffered = 1_000).await;
    let long = "x".repeat(6_000);
    let status = running.client.ask(request("files", &[&format!("user={long}")])).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("--max-buffered"), "{status:?}");
    assert_eq!(running.left("files", &["user=a"]).await, (true, vec![2]));
}

/// What the fuzzer does for long, for a moment.
#[tokio::test]
async fn messages_with_random_damage_are_answered_or_refused() {
    let running = start(|settings| (settings.envoy_problem, settings.envoy_metadata) = (true, true)).await;
    let mut random = Random::new(8);
    let whole = [
        request("files", &["user=a", "path=/a +2", "blocked=x", "free=x ?", "watched=x -1"]).encode_to_vec(),
        request("edge", &["user=a path=/a +3 @10/2", "what=x"]).encode_to_vec(),
        br#"{"domain": "files", "hitsAddend": 2, "descriptors": [{"entries": [{"key": "user", "value": "a"}],
            "limit": {"requestsPerUnit": 5, "unit": "DAY"}, "hitsAddend": "3", "isNegativeHits": true}]}"#
            .to_vec(),
    ];
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..3_000 {
        let mut bytes = whole[random.within(0..=2) as usize].clone();
        for _ in 0..random.within(0..=4) {
            let place = random.within(0..=bytes.len() as u64 - 1) as usize;
            match random.within(0..=2) {
                0 => bytes[place] = random.within(0..=255) as u8,
                1 => bytes.truncate(place.max(1)),
                _ => bytes.insert(place, random.within(0..=255) as u8),
            }
        }
        let app = running.server.app();
        match (RateLimitRequest::decode(&bytes[..]), tidegate_server::envoy_message::answer(app, &bytes).await) {
            (Err(_), answer) => assert!(answer.is_none(), "an answer to what is no message: {bytes:?}"),
            (Ok(_), None) => refused += 1,
            (Ok(request), Some(answer)) => {
                let response = RateLimitResponse::decode(&answer[..]).unwrap();
                assert_eq!(response.statuses.len(), request.descriptors.len(), "{bytes:?}");
                answered += 1;
            }
        }
        let (status, _) = tidegate_server::envoy_message::answer_json(app, &bytes).await;
        assert!(matches!(status, 200 | 400 | 429), "{status}: {bytes:?}");
    }
    assert!(answered > 100 && refused > 10, "{answered} answered, {refused} refused");
}
