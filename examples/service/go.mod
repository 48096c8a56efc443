module example.com/service

go 1.26.0

require (
	github.com/gocql/gocql v1.7.0
	github.com/scylla-outbox/scylla-outbox/outbox v0.1.0
)

require (
	github.com/golang/snappy v0.0.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hailocab/go-hostpool v0.0.0-20160125115350-e80d13ce29ed // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
)

// Until v0.1.0 is published: the library of this checkout. Remove this line afterwards.
replace github.com/scylla-outbox/scylla-outbox/outbox => ../../outbox
