//! librdmacm: event channels, identifiers, connections (rdma_cm(7)).
