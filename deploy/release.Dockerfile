# The image of a release: the binary that its archive contains, and CA certificates.
FROM gcr.io/distroless/static-debian12:nonroot
ARG TARGETPLATFORM
ARG PROGRAM=outbox
COPY $TARGETPLATFORM/$PROGRAM /outbox
USER 65532:65532
ENTRYPOINT ["/outbox"]
CMD ["--help"]
