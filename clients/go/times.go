package dsync

import "time"

// The times of the protocol, under the names that its table has for all languages.
const (
	// For an answer to a command that does not block, a connection included; then the server is looked up afresh.
	answerWithin = 2 * time.Second
	// For the answers to a round of renewals, at most; a third of the shortest lease otherwise.
	renewalWithin = 5 * time.Second
	// A try in all, whatever the server does.
	tryWithin = 2 * time.Second
	// For a withdrawal, and for a question for the text of an error; after a try, of whose time they are a part.
	withdrawWithin    = 1 * time.Second
	withdrawTryWithin = 500 * time.Millisecond
	// How long the server keeps a place in the queue after its request was last heard of.
	placeKeptFor = 5 * time.Second
	// A single BLOCK: with the time for its answer, shorter than a place is kept.
	blockAtMost = 2 * time.Second
	// The pauses between two attempts double from the first to the longest.
	firstPause   = 50 * time.Millisecond
	longestPause = 1 * time.Second
	// How long requests are repeated while nothing answers, by default.
	retryFor = 30 * time.Second
	// By how much a server that is promoted can prolong a lease (dsync.takeover-grace-ms).
	takeoverGrace = 5 * time.Second
	// A lease by default, and what a tenth of one is at most as margin, and as the time of a confirmation.
	lease         = 30 * time.Second
	marginAtMost  = 2 * time.Second
	confirmAtMost = 500 * time.Millisecond
)
