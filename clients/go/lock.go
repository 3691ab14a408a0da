package dsync

// Lock is a lock that one hold has at a time, or several that are [Shared]. Any number of goroutines may use it: each
// Acquire is a request of its own.
type Lock struct{ claim }

// NewLock makes a lock. Nothing is sent; a wrong option is the error of Acquire.
func NewLock(client *Client, key string, options ...LockOption) *Lock {
	return &Lock{newClaim(client, locks, key, options, LockOption.forLock)}
}
