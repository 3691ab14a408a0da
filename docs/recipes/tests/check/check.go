// Package check is what the hidden Go code of the recipes checks with. A check that fails ends the program with a panic,
// which names the line of the page.
package check

import (
	"fmt"
	"sync"
	"time"
)

// That fails with what there is instead, unless the condition is met.
func That(isMet bool, instead ...any) {
	if !isMet {
		panic(fmt.Sprintln(instead...))
	}
}

// OK fails on an error.
func OK(err error) {
	if err != nil {
		panic(err)
	}
}

// Must returns the value, and fails on an error.
func Must[T any](value T, err error) T {
	OK(err)
	return value
}

// All calls work(0) to work(n-1) at the same time, waits for all, and returns their errors.
func All(n int, work func(i int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			errs[i] = work(i)
		}(i)
	}
	all.Wait()
	return errs
}

// Eventually waits until the condition is met, and fails after 20 seconds.
func Eventually(isMet func() bool) {
	for deadline := time.Now().Add(20 * time.Second); !isMet(); time.Sleep(10 * time.Millisecond) {
		That(time.Now().Before(deadline), "not within 20 s")
	}
}

// Log is what was done, in order, by many at a time, and how many were at it at most.
type Log struct {
	mutex     sync.Mutex
	entries   []string
	now, most int
}

// Do does an entry for so long.
func (l *Log) Do(entry string, length time.Duration) {
	l.mutex.Lock()
	l.now++
	l.most = max(l.most, l.now)
	l.mutex.Unlock()
	time.Sleep(length)
	l.mutex.Lock()
	l.now--
	l.entries = append(l.entries, entry)
	l.mutex.Unlock()
}

// Entries returns what was done so far.
func (l *Log) Entries() []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return append([]string(nil), l.entries...)
}

// Most returns how many were at it at most at the same time.
func (l *Log) Most() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.most
}
