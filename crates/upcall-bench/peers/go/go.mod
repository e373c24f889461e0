module upcall-peer

go 1.22
