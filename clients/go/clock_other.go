//go:build !linux

package dsync

import "time"

func now() time.Duration { return greaterOfBoth.now() }
