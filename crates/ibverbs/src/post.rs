//! Work requests from C into requests of the verbs layer (ibv_post_send(3), ibv_post_recv(3)).
