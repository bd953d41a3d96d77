//! Limits that come with descriptors: within the caps of the server, and within a budget of keys.

use super::*;

/// A file decides the first domain, the policy the second.
const DOMAINS: [&str; 2] = ["files", "edge"];

#[tokio::test]
async fn an_override_above_the_cap_is_an_error_that_names_the_flag() {
    let mut running = start(|settings| settings.inline_max_count = 100).await;
    for domain in DOMAINS {
        assert_eq!(running.left(domain, &["user=a @100/2"]).await, (true, vec![99]));
        let status = running.client.ask(request(domain, &["user=a", "user=a @101/2"])).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("--inline-max-count"), "{status:?}");
        // A year: periods of the protocol have no cap.
        assert_eq!(running.left(domain, &["user=a @2/6"]).await, (true, vec![1]));
    }
}

#[tokio::test]
async fn a_server_without_inline_limits_takes_no_override() {
    let mut running = start(|settings| settings.no_inline = true).await;
    for domain in DOMAINS {
        for descriptor in ["user=a @1/2", "user=a @0/2", "user=a ? @1/2"] {
            let status = running.client.ask(request(domain, &[descriptor])).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains("--no-inline"), "{status:?}");
        }
        assert!(running.left(domain, &["user=a"]).await.0);
    }
}

/// Where a file decides, overrides are in the store of its limits.
#[tokio::test]
async fn overrides_take_no_more_of_the_store_of_the_files_than_their_budget() {
    let mut running = start(|settings| settings.inline_max_keys = 100).await;
    for domain in DOMAINS {
        let (mut answered, mut refused) = (0, 0);
        for number in 0..500 {
            match running.client.ask(request(domain, &[&format!("user=p{number} @1/5")])).await {
                Ok(_) => answered += 1,
                Err(status) => {
                    assert_eq!(status.code(), Code::Unavailable);
                    assert!(status.message().contains("--inline-max-keys"), "{status:?}");
                    refused += 1;
                }
            }
        }
        match domain {
            // A table has spare slots, in all a multiple of 256.
            "files" => assert!((100..=256).contains(&answered) && refused == 500 - answered, "{answered}, {refused}"),
            // In a store of their own, keys without room share states.
            _ => assert_eq!((answered, refused), (500, 0)),
        }
        assert!(running.left(domain, &["user=newcomer"]).await.0);
    }
}
