//go:build cloud

package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"

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
	return &bucket{b}, nil
}

// bucket is an object store. They acknowledge durable objects.
type bucket struct{ *blob.Bucket }

func (b *bucket) Write(ctx context.Context, key string, content []byte, contentType string) error {
	return b.WriteAll(ctx, key, content, &blob.WriterOptions{ContentType: contentType})
}

func (b *bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := b.NewReader(ctx, key, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (b *bucket) List(ctx context.Context, prefix string) iter.Seq2[archive.Object, error] {
	return func(yield func(archive.Object, error) bool) {
		it := b.Bucket.List(&blob.ListOptions{Prefix: prefix})
		for {
			o, err := it.Next(ctx)
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

func (b *bucket) Delete(ctx context.Context, key string) error {
	if err := b.Bucket.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	return nil
}
