module upcall-peer

go 1.21
