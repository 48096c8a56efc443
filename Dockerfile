# syntax=docker/dockerfile:1
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -tags cloud -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /outbox ./cmd/outbox

# Nothing but the static binary and the CA certificates; no shell, no root.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /outbox /outbox
USER 65532:65532
ENTRYPOINT ["/outbox"]
CMD ["--help"]
