"""A client of envoyproxy/ratelimit, by Envoy's own protos: the answers of a server in its place."""

import sys

import grpc
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2

Response = rls_pb2.RateLimitResponse
OK, OVER_LIMIT = Response.OK, Response.OVER_LIMIT

channel = grpc.insecure_channel(sys.argv[1])
grpc.channel_ready_future(channel).result(timeout=300)
should_rate_limit = channel.unary_unary(
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    request_serializer=rls_pb2.RateLimitRequest.SerializeToString,
    response_deserializer=Response.FromString,
)


def ask(*descriptors, **fields):
    request = rls_pb2.RateLimitRequest(domain="rl", **fields)
    for text in descriptors:
        descriptor = request.descriptors.add()
        for entry in text.split():
            key, value = entry.split("=")
            descriptor.entries.append(ratelimit_pb2.RateLimitDescriptor.Entry(key=key, value=value))
    return should_rate_limit(request, timeout=300)


def code(*descriptors, **fields):
    return ask(*descriptors, **fields).overall_code


# A limit by key and value, and one that it replaces.
assert [code("category=account") for _ in range(5)] == [OK] * 4 + [OVER_LIMIT]
assert [code("cluster=proxy to=fake") for _ in range(3)] == [OK, OK, OVER_LIMIT]
assert code("category=account", "cluster=proxy to=fake") == OVER_LIMIT
assert code("cluster=proxy to=override", "foo=x bar=banned") == OK

# A limit for each value of a key, and one below it.
assert [code("foo=a") for _ in range(3)] == [OK, OK, OVER_LIMIT]
assert code("foo=b", hits_addend=2) == OK and code("foo=b") == OVER_LIMIT
assert [code("foo=a bar=c") for _ in range(4)] == [OK] * 3 + [OVER_LIMIT]
assert code("foo=x bar=banned") == OVER_LIMIT

# What only watches, what has no limit, and what no file knows.
assert [code("foo=a baz=shady") for _ in range(5)] == [OK] * 5
free = ask("qux=1").statuses[0]
assert (free.code, free.limit_remaining, free.HasField("current_limit")) == (OK, 2**32 - 1, False), free
assert code("unknown=1") == OK

# Quotas refuse only together.
both = ("service=one", "service=two")
assert [code(*both) for _ in range(3)] == [OK, OK, OVER_LIMIT]

# What clients are told, under the names that the environment gives.
refused = ask("foo=a")
headers = {header.key: header.value for header in refused.response_headers_to_add}
assert headers.keys() == {"X-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, headers
assert (headers["X-Limit"], headers["RateLimit-Remaining"]) == ("2", "0"), headers
assert int(headers["RateLimit-Reset"]) == refused.statuses[0].duration_until_reset.seconds > 0, refused

for broken in (lambda: should_rate_limit(rls_pb2.RateLimitRequest(domain="rl")), lambda: ask()):
    try:
        broken()
    except grpc.RpcError:
        pass
    else:
        raise AssertionError("a request without descriptors was answered")
print("all as expected")
