"""The views, by address."""

from django.urls import path

from tests.contrib.site.pages import views

urlpatterns = [
    path("view/<str:name>", views.view),
    path("later/<str:name>", views.view_counted_later),
    path("fail/<str:name>", views.fail),
    path("async/<str:name>", views.view_async),
]
