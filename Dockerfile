FROM golang:1.26 AS build
WORKDIR /src
COPY . .
# cloud,grpcnotrace makes outbox-cloud.
ARG TAGS=grpcnotrace
ARG VERSION=dev
# Modules and compiled packages are kept for the next build.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -tags "${TAGS}" -trimpath -ldflags "-s -w -X github.com/scylla-outbox/scylla-outbox/internal/cli.Version=${VERSION}" -o /outbox ./cmd/outbox

# Nothing but the static binary and the CA certificates; no shell, no root.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /outbox /outbox
USER 65532:65532
ENTRYPOINT ["/outbox"]
CMD ["--help"]
