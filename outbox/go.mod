module github.com/scylla-outbox/scylla-outbox/outbox

go 1.26.0

require (
	github.com/gocql/gocql v1.7.0
	github.com/google/uuid v1.6.0
	gopkg.in/inf.v0 v0.9.1
)

require (
	github.com/golang/snappy v0.0.3 // indirect
	github.com/hailocab/go-hostpool v0.0.0-20160125115350-e80d13ce29ed // indirect
)
