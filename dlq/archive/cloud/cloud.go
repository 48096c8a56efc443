//go:build cloud

package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://container
	_ "gocloud.dev/blob/gcsblob"   // gs://bucket
	_ "gocloud.dev/blob/s3blob"    // s3://bucket?region=…
	"gocloud.dev/gcerrors"

	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
)

func init() {
	for _, scheme := range []string{"azblob", "gs", "s3"} {
		archive.Register(scheme, open)
	}
}

func open(ctx context.Context, bucketURL string) (archive.Bucket, error) {
	b, err := blob.OpenBucket(ctx, bucketURL)
	if err != nil {
		return nil, err
	}
	return &bucket{b, requestTimeout}, nil
}

// requestTimeout bounds a request and the SDK's retries of it. Without it the SDK of Google
// Cloud retries until the context ends, and that of a sweep or a command does not end.
const requestTimeout = time.Minute

// bucket is an object store. They acknowledge durable objects.
type bucket struct {
	*blob.Bucket
	timeout time.Duration
}

func (b *bucket) Write(ctx context.Context, key string, content []byte, contentType string) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	// Not WriteAll: gocloud.dev's driver of Azure panics there after a failure.
	return b.Upload(ctx, key, bytes.NewReader(content), &blob.WriterOptions{ContentType: contentType})
}

func (b *bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(b.timeout, func() { cancel(context.DeadlineExceeded) })
	r, err := b.NewReader(ctx, key, nil)
	timer.Stop()
	if err == nil {
		return &reader{r, b.timeout, timer, cancel}, nil
	}
	defer cancel(nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return nil, errors.Join(err, context.Cause(ctx))
}

// reader bounds each read, not the time that its caller takes between two of them.
type reader struct {
	*blob.Reader
	timeout time.Duration
	timer   *time.Timer // cancels the context of the request
	cancel  context.CancelCauseFunc
}

func (r *reader) Read(p []byte) (int, error) {
	r.timer.Reset(r.timeout)
	defer r.timer.Stop()
	return r.Reader.Read(p)
}

func (r *reader) Close() error {
	defer r.cancel(nil)
	return r.Reader.Close()
}

func (b *bucket) Exists(ctx context.Context, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.Bucket.Exists(ctx, key)
}

func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[archive.Object, error] {
	return func(yield func(archive.Object, error) bool) {
		it := b.Bucket.List(&blob.ListOptions{Prefix: prefix})
		for {
			o, err := b.next(ctx, it)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(archive.Object{}, err)
				return
			}
			if !yield(archive.Object{Key: o.Key, ModTime: o.ModTime}, nil) {
				return
			}
		}
	}
}

// next returns the next object, which may need a request.
func (b *bucket) next(ctx context.Context, it *blob.ListIterator) (*blob.ListObject, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return it.Next(ctx)
}

func (b *bucket) Delete(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := b.Bucket.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	return nil
}
