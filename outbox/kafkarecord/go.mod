module github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord

go 1.26.0

replace github.com/scylla-outbox/scylla-outbox/outbox => ../

require (
	github.com/scylla-outbox/scylla-outbox/outbox v0.1.0
	github.com/twmb/franz-go v1.22.2
)

require (
	github.com/gocql/gocql v1.7.0 // indirect
	github.com/golang/snappy v0.0.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hailocab/go-hostpool v0.0.0-20160125115350-e80d13ce29ed // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.15.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
)
