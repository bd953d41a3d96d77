"""What grpcio sees of a server: health, reflection, and the answers of the
rate limit service, whose messages it knows by reflection alone."""

import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"

channel = grpc.insecure_channel(sys.argv[1])
grpc.channel_ready_future(channel).result(timeout=300)

health = health_pb2_grpc.HealthStub(channel)
for name in ("", SERVICE, "ratelimit"):
    status = health.Check(health_pb2.HealthCheckRequest(service=name)).status
    assert status == health_pb2.HealthCheckResponse.SERVING, (name, status)

database = ProtoReflectionDescriptorDatabase(channel)
services = set(database.get_services())
assert {SERVICE, "grpc.health.v1.Health"} <= services, services
pool = descriptor_pool.DescriptorPool(database)
method = pool.FindServiceByName(SERVICE).FindMethodByName("ShouldRateLimit")
Request = message_factory.GetMessageClass(method.input_type)
Response = message_factory.GetMessageClass(method.output_type)
should_rate_limit = channel.unary_unary(
    f"/{SERVICE}/ShouldRateLimit",
    request_serializer=Request.SerializeToString,
    response_deserializer=Response.FromString,
)


def ask(domain, *descriptors, **fields):
    request = Request(domain=domain, **fields)
    for entries in descriptors:
        descriptor = request.descriptors.add()
        for key, value in entries.items():
            descriptor.entries.add(key=key, value=value)
    return should_rate_limit(request, timeout=300)


codes = [ask("edge", {"user": "alice"}).overall_code for _ in range(5)]
assert codes == [Response.OK] * 3 + [Response.OVER_LIMIT] * 2, codes

answer = ask("edge", {"user": "bob"}, {"unknown": "x"}, hits_addend=2)
first, second = answer.statuses
assert (answer.overall_code, first.code, second.code) == (Response.OK,) * 3, answer
assert (first.current_limit.requests_per_unit, first.limit_remaining) == (3, 1), answer
assert first.current_limit.unit == Response.RateLimit.YEAR, answer
assert first.duration_until_reset.seconds > 0, answer
assert not second.HasField("current_limit"), answer

for broken in (lambda: ask("", {"user": "x"}), lambda: ask("edge")):
    try:
        broken()
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    else:
        raise AssertionError("an error went unnoticed")

try:
    channel.unary_unary("/no.such.Service/Method")(b"", timeout=300)
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
print("all as expected")
