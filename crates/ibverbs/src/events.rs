//! Asynchronous events (ibv_get_async_event(3)).
