# syntax=docker/dockerfile:1
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY devkit/go.mod devkit/go.sum devkit/
COPY outbox/go.mod outbox/go.sum outbox/
RUN go mod download
COPY . .
ARG VERSION=dev
# cloud,grpcnotrace makes outbox-cloud.
ARG TAGS=grpcnotrace
RUN CGO_ENABLED=0 go build -tags "${TAGS}" -trimpath -ldflags "-s -w -X github.com/scylla-outbox/scylla-outbox/internal/cli.Version=${VERSION}" -o /outbox ./cmd/outbox

# Nothing but the static binary and the CA certificates; no shell, no root.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /outbox /outbox
USER 65532:65532
ENTRYPOINT ["/outbox"]
CMD ["--help"]
