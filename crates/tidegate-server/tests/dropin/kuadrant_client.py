"""A client of limitador: Envoy's own protos, and Kuadrant's service compiled by protoc beside them."""

import os
import sys

import grpc
import grpc_tools
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

address, protos, folder = sys.argv[1:]
FILE = "kuadrant/service/ratelimit/v1/kuadrantrls.proto"
compiled = f"{folder}/kuadrant.bin"
known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
assert protoc.main(["protoc", f"-I{protos}", f"-I{known}", f"--descriptor_set_out={compiled}", FILE]) == 0
with open(compiled, "rb") as file:
    (described,) = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
pool = descriptor_pool.Default()
pool.Add(described)

Response = rls_pb2.RateLimitResponse
OK, OVER_LIMIT, UNKNOWN = Response.OK, Response.OVER_LIMIT, Response.UNKNOWN
channel = grpc.insecure_channel(address)
grpc.channel_ready_future(channel).result(timeout=300)


def method(service, name):
    described = pool.FindServiceByName(service).FindMethodByName(name)
    Request = message_factory.GetMessageClass(described.input_type)
    Response = message_factory.GetMessageClass(described.output_type)
    call = channel.unary_unary(
        f"/{service}/{name}",
        request_serializer=Request.SerializeToString,
        response_deserializer=Response.FromString,
    )

    def ask(domain, *descriptors, **fields):
        request = Request(domain=domain, **fields)
        for text in descriptors:
            descriptor = request.descriptors.add()
            for entry in text.split():
                key, value = entry.split("=")
                descriptor.entries.append(ratelimit_pb2.RateLimitDescriptor.Entry(key=key, value=value))
        return call(request, timeout=300)

    return ask


KUADRANT = "kuadrant.service.ratelimit.v1.RateLimitService"
should_rate_limit = method("envoy.service.ratelimit.v3.RateLimitService", "ShouldRateLimit")
check, report = method(KUADRANT, "CheckRateLimit"), method(KUADRANT, "Report")
reserve, commit = method(KUADRANT, "Reserve"), method(KUADRANT, "Commit")

# Envoy's service: all descriptors are one request, and each limit that applies is charged once.
post = "req.method=POST user_id="
codes = [should_rate_limit("shop", post + "alice").overall_code for _ in range(6)]
assert codes == [OK] * 5 + [OVER_LIMIT], codes
assert should_rate_limit("shop", post + "bob", hits_addend=5).overall_code == OK
assert should_rate_limit("shop", post + "bob").overall_code == OVER_LIMIT
assert should_rate_limit("shop", "req.method=GET user_id=alice").overall_code == OK
assert should_rate_limit("other", post + "alice").overall_code == OK
assert should_rate_limit("shop", "req.method=POST").overall_code == OK, "without the variable it does not apply"

# To look charges nothing; what is reported is never refused.
assert [check("shop", post + "carol").overall_code for _ in range(9)] == [OK] * 9
assert report("shop", post + "carol", hits_addend=4).overall_code == OK
assert check("shop", post + "carol").overall_code == OK
assert report("shop", post + "carol", hits_addend=40).overall_code == OK
assert check("shop", post + "carol").overall_code == OVER_LIMIT
assert check("", post + "carol").overall_code == UNKNOWN
assert check("shop").overall_code == OK, "a limit without conditions needs no descriptors"

# What is reserved is held, and corrected by the commit.
dave = post + "dave"
first = reserve("shop", dave, amount=3)
assert first.code == OK and first.reservation_id, first
assert reserve("shop", dave, amount=3).code == OVER_LIMIT
second = reserve("shop", dave, amount=2, ttl={"seconds": 30})
assert second.code == OK and second.reservation_id not in ("", first.reservation_id), second
assert check("shop", dave).overall_code == OVER_LIMIT
assert commit("shop", dave, reservation_id=first.reservation_id, actual_amount=1).reservation_released
assert reserve("shop", dave, amount=3).code == OVER_LIMIT, "1 is spent, and 2 are held"
third = reserve("shop", dave, amount=2)
assert third.code == OK, third
assert commit("shop", dave, reservation_id=third.reservation_id, actual_amount=0).reservation_released
assert commit("shop", dave, reservation_id=second.reservation_id, actual_amount=2).reservation_released
assert [should_rate_limit("shop", dave).overall_code for _ in range(3)] == [OK, OK, OVER_LIMIT]

# Without a reservation a commit is a report.
erin = post + "erin"
for unknown in ("", "no-such-reservation"):
    assert not commit("shop", erin, reservation_id=unknown, actual_amount=2).reservation_released
assert [should_rate_limit("shop", erin).overall_code for _ in range(2)] == [OK, OVER_LIMIT]
assert reserve("shop", erin, amount=1000).code == OVER_LIMIT, "more than could ever pass"
nothing = reserve("other", erin, amount=3)
assert (nothing.code, nothing.reservation_id) == (OK, ""), "no limit, nothing held"
assert reserve("", erin, amount=3).code == UNKNOWN
print("all as expected")
