"""Views under ATOMIC_REQUESTS, unless a test says otherwise."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse

from tests.contrib.site.pages.models import Page
from tests.contrib.site.pages.structures import pageviews, store


def view(request: HttpRequest, name: str) -> HttpResponse:
    Page.objects.create(name=name)
    _, total = store.run_all(pageviews.add(name), pageviews.total(name))
    return HttpResponse(total)


def view_counted_later(request: HttpRequest, name: str) -> HttpResponse:
    store.on_commit(pageviews.add(name))
    return HttpResponse(store.run(pageviews.total(name)))


def fail(request: HttpRequest, name: str) -> HttpResponse:
    view(request, name)
    store.on_commit(pageviews.add(name))
    raise RuntimeError("the view failed")


async def view_async(request: HttpRequest, name: str) -> HttpResponse:
    await Page.objects.acreate(name=name)
    _, total = await store.arun_all(pageviews.add(name), pageviews.total(name))
    pages = await sync_to_async(Page.objects.count)()
    return HttpResponse(f"{total} {pages}")
