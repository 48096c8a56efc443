package app

import (
	"context"
)

// Stopped is nil if err is only that ctx ended, by a signal.
func Stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
