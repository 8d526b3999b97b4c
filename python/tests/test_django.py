"""Django behind both kinds of middleware, with its own settings, routing, body and transactions."""

import asyncio

import django
import httpx
import pytest
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from werkzeug.test import Client

from onlyonce import Engine, IdempotencyMiddleware, WSGIMiddleware, execution

KEY = {"idempotency-key": "7c9e6679-7425-40de-944b-e07fc1f90ae7", "content-type": "application/json"}
runs = []


@csrf_exempt
def charge(request):
    runs.append(request.body)
    return JsonResponse({"run": len(runs), "key": execution().downstream("charge")}, status=201)


@csrf_exempt
async def acharge(request):
    await asyncio.sleep(0)
    return charge(request)


urlpatterns = [path("charges", charge), path("acharges", acharge)]
if not settings.configured:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of-the-tests", DEBUG=False)
    django.setup()


@pytest.fixture
def engine():
    runs.clear()
    with Engine.open("memory:") as engine:
        yield engine


def test_a_view_behind_wsgi_runs_once(engine):
    client = Client(WSGIMiddleware(get_wsgi_application(), engine=engine))

    first = client.post("/charges", headers=KEY, data=b"{}")
    again = client.post("/charges", headers=KEY, data=b"{}")

    assert (first.status_code, again.status_code, again.data) == (201, 201, first.data)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert runs == [b"{}"]


@pytest.mark.parametrize("path", ["/charges", "/acharges"])
def test_a_view_behind_asgi_runs_once(engine, path):
    app = IdempotencyMiddleware(get_asgi_application(), engine=engine)

    async def twice():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client:
            return [await client.post(path, headers=KEY, content=b"{}") for _ in range(2)]

    first, again = asyncio.run(twice())

    assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert runs == [b"{}"]
