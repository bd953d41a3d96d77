//! Whatever a client writes into a forwarding header, what a proxy appends is
//! what counts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::{Extensions, HeaderMap, HeaderValue};
use tidegate::Network;
use tidegate_tower::{ClientIp, ForwardingHeader};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// A client's own header, to which one proxy or two append.
pub fn forwarded(input: &[u8]) {
    let Ok(claimed) = HeaderValue::from_bytes(input) else { return };
    let mut extensions = Extensions::new();
    extensions.insert(SocketAddr::new(PROXY, 4711));
    let proxies = Network::new(PROXY, 8);
    for (name, header) in
        [("x-forwarded-for", ForwardingHeader::XForwardedFor), ("forwarded", ForwardingHeader::Forwarded)]
    {
        let entry = |address: IpAddr| match name {
            "forwarded" => format!("for={address}"),
            _ => address.to_string(),
        };
        let (one, two) = (entry(CLIENT), format!("{}, {}", entry(CLIENT), entry(PROXY)));
        for (client_ip, appended) in [
            (ClientIp::behind(1), &one),
            (ClientIp::behind(2), &two),
            (ClientIp::behind_any_of([proxies]), &one),
            (ClientIp::behind_any_of([proxies]), &two),
        ] {
            let client_ip = client_ip.header(header);
            let in_its_line = [claimed.as_bytes(), b", ", appended.as_bytes()].concat();
            let in_its_line = HeaderValue::from_bytes(&in_its_line).expect("two values make one");
            let own_line = HeaderValue::from_str(appended).expect("a value");
            for lines in [vec![in_its_line], vec![claimed.clone(), own_line]] {
                let mut headers = HeaderMap::new();
                for line in lines {
                    headers.append(name, line);
                }
                assert_eq!(client_ip.of(&headers, &extensions), Some(CLIENT), "{client_ip:?} {headers:?}");
            }
        }
    }
    // Headers with one entry are the proxy's alone: whatever is in them is read or refused.
    for (name, header) in
        [("x-real-ip", ForwardingHeader::XRealIp), ("cf-connecting-ip", ForwardingHeader::CfConnectingIp)]
    {
        let headers = HeaderMap::from_iter([(name.parse().expect("a name"), claimed.clone())]);
        let _ = ClientIp::behind(1).header(header).of(&headers, &extensions);
    }
}
