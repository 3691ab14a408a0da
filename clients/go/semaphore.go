package dsync

import "context"

// Semaphore is a semaphore, of which holds take permits in the order of their requests, or fairly by [Lane].
type Semaphore struct{ claim }

// NewSemaphore makes a semaphore; give it a [Limit]. Nothing is sent; a wrong option is the error of Acquire.
func NewSemaphore(client *Client, key string, options ...SemaphoreOption) *Semaphore {
	return &Semaphore{newClaim(client, semaphores, key, options, SemaphoreOption.forSemaphore)}
}

// Available returns how many permits are free. It takes nothing.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	info, err := s.info(ctx)
	if info.state == "" {
		return s.limit, err // Nobody uses it.
	}
	return info.available, err
}
