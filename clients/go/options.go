package dsync

import (
	"fmt"
	"time"
)

// Options of locks, semaphores, groups and works. The type of each says for which of them it is; the compiler checks that.
type (
	// Option is for all four families.
	Option func(*settings)

	LockOption      interface{ forLock(*settings) }
	SemaphoreOption interface{ forSemaphore(*settings) }
	GroupOption     interface{ forGroup(*settings) }
	OnceOption      interface{ forOnce(*settings) }
)

func (o Option) forLock(s *settings)      { o(s) }
func (o Option) forSemaphore(s *settings) { o(s) }
func (o Option) forGroup(s *settings)     { o(s) }
func (o Option) forOnce(s *settings)      { o(s) }

// Lease sets how long the others wait if this process dies: 30 seconds unless set. The hold is renewed at each third of
// it.
func Lease(lease time.Duration) Option { return func(s *settings) { s.lease = lease } }

// Wait sets how long to wait at most: without limit unless set, or until the context ends. 0 is a try, which takes two
// seconds in all, whatever the server does.
func Wait(wait time.Duration) Option { return func(s *settings) { s.wait = min(wait, never) } }

// Owner sets the text that INFO shows to people, at most 128 bytes: user@host:pid unless set. "" is none.
func Owner(owner string) Option { return func(s *settings) { s.owner = owner } }

// Margin sets how long before the end of its lease a hold counts as lost: a tenth of the lease, at most two seconds,
// unless set.
func Margin(margin time.Duration) Option { return func(s *settings) { s.margin = &margin } }

// MaxHold bounds a hold: it is lost so long after its grant at the latest, whatever is renewed.
func MaxHold(limit time.Duration) Option { return func(s *settings) { s.maxHold = min(limit, never) } }

// Replicas makes a hold one that so many replicas know: an answer that they do not confirm is no answer.
func Replicas(replicas int) Option {
	return func(s *settings) {
		s.check(replicas >= 1, "Replicas", "1 or more", replicas)
		s.confirm.replicas = replicas
	}
}

// AllReplicas is [Replicas] with as many as the primary has attached when it answers, at least one.
func AllReplicas() Option { return func(s *settings) { s.confirm.isAll = true } }

// Disk makes a hold one that is synced to the disk of the primary, and to those of as many replicas as [Replicas] says.
// The server must be a Redis from 7.2 or a Valkey, with an append-only file.
func Disk() Option { return func(s *settings) { s.confirm.isDisk = true } }

// Within sets how long a confirmation is waited for before the request is repeated: a tenth of the lease, at most 500
// milliseconds, unless set.
func Within(within time.Duration) Option {
	return func(s *settings) {
		s.duration("Within", within)
		s.confirm.within = min(within, never)
	}
}

// RetryFor sets for how long requests are repeated while nothing answers: 30 seconds unless set. Then their last error
// is returned.
func RetryFor(retryFor time.Duration) Option {
	return func(s *settings) { s.retryFor = min(retryFor, never) }
}

// Shared takes a lock together with other shared holds.
func Shared() LockOption { return Option(func(s *settings) { s.word("SHARED") }) }

// MinHold sets how long after its grant a hold that ends earlier keeps its place taken: it rests.
func MinHold(rest time.Duration) interface {
	LockOption
	SemaphoreOption
} {
	return Option(func(s *settings) {
		s.duration("MinHold", rest)
		s.word("MINHOLD", millis(rest))
	})
}

// Limit sets how many permits a semaphore has, or how many members of a group may live at a time.
func Limit(limit int) interface {
	SemaphoreOption
	GroupOption
} {
	return Option(func(s *settings) {
		s.limit = limit
		s.count("Limit", "LIMIT", limit)
	})
}

// Permits sets how many permits a hold takes: 1 unless set.
func Permits(permits int) SemaphoreOption {
	return Option(func(s *settings) {
		s.permits = permits
		s.count("Permits", "PERMITS", permits)
	})
}

// Lane names who the permits are for, at most 128 bytes: free ones go to the lane that has the fewest in use.
func Lane(lane string) SemaphoreOption {
	return Option(func(s *settings) {
		s.check(lane != "" && len(lane) <= longestText, "Lane", "1 to 128 bytes", len(lane))
		s.lane = lane
		s.word("LANE", lane)
	})
}

// LaneLimit sets how many permits the lane may have in use.
func LaneLimit(limit int) SemaphoreOption {
	return Option(func(s *settings) {
		s.laneLimit = limit
		s.count("LaneLimit", "LANELIMIT", limit)
	})
}

// Index asks for [Hold.Index]: the lowest number from 0 that no other hold has. For holds of one permit.
func Index() SemaphoreOption {
	return Option(func(s *settings) { s.isIndexed = true; s.word("INDEX") })
}

// MaxAttempts sets after how many failures the work is given up: never unless set. Then callers get a [*WorkFailed].
func MaxAttempts(attempts int) OnceOption {
	return Option(func(s *settings) {
		s.maxAttempts = attempts
		s.count("MaxAttempts", "MAX", attempts)
	})
}

// UntilDone has a call of Do whose work fails begin again, in line behind those who wait, until the work is done or its
// [MaxAttempts], which it needs, are over.
func UntilDone() OnceOption { return Option(func(s *settings) { s.isUntilDone = true }) }

// RetryDelay sets for how long nobody begins again after a failure.
func RetryDelay(delay time.Duration) OnceOption {
	return Option(func(s *settings) {
		s.duration("RetryDelay", delay)
		s.retryDelay = delay
	})
}

// Keep sets how long the result is kept: as the server says unless set, a day by default. Then the work may run again.
func Keep(keep time.Duration) OnceOption {
	return Option(func(s *settings) {
		s.duration("Keep", keep)
		s.keep = append(s.keep, "PX", millis(keep))
	})
}

// Forever keeps the result until the key is deleted: for what must never happen twice.
func Forever() OnceOption {
	return Option(func(s *settings) { s.keep = append(s.keep, "PERSIST") })
}

// settings are the options of one claim.
type settings struct {
	lease, retryFor time.Duration
	// Wait is 0 for a try. It and maxHold are never where there is no limit.
	wait, maxHold time.Duration
	// Margin is nil where it follows the lease.
	margin  *time.Duration
	owner   string
	confirm confirmation
	// Numbers that are not given are 0.
	limit, permits, laneLimit, maxAttempts int
	lane                                   string
	isIndexed, isUntilDone                 bool
	retryDelay                             time.Duration
	// Keep is what DONE says of how long the result is kept.
	keep []any
	// Words are those of the request that only some families have, with OWNER.
	words []any
	// Err is the first option that is wrong. It is returned instead of a request.
	err error
}

func (s *settings) word(words ...any) { s.words = append(s.words, words...) }

func (s *settings) check(isRight bool, option, bound string, value any) {
	if !isRight && s.err == nil {
		s.err = fmt.Errorf("dsync: %s is %s, not %v", option, bound, value)
	}
}

// bounds are the least and the most that durations may be.
var bounds = map[string][2]time.Duration{
	"Lease": {time.Millisecond, 30 * day}, "MinHold": {time.Millisecond, 30 * day},
	"Keep": {time.Millisecond, 3650 * day}, "RetryDelay": {0, 30 * day},
	"Within": {time.Millisecond, never}, "MaxHold": {time.Millisecond, never}, "Wait": {0, never}, "RetryFor": {0, never},
}

func (s *settings) duration(option string, value time.Duration) {
	least, most := bounds[option][0], bounds[option][1]
	if value >= least && min(value, never) <= most {
		return
	}
	text := fmt.Sprintf("%v to %d days", least, most/day)
	if most == never {
		text = fmt.Sprintf("%v or more", least)
	}
	given := value.String()
	if value > 0 && value < time.Microsecond {
		given += fmt.Sprintf(": write %d*time.Second", value) // A number without its unit.
	}
	s.check(false, option, text, given)
}

const day, mostCount = 24 * time.Hour, 1_000_000

// count checks a number, and gives it to the request.
func (s *settings) count(option, word string, value int) {
	s.check(value >= 1 && value <= mostCount, option, "1 to 1000000", value)
	s.word(word, value)
}

// complete sets what depends on several options, and checks them together.
func (s *settings) complete() {
	_, s.err = s.terms(s.lease)
	s.duration("Wait", s.wait)
	s.duration("RetryFor", s.retryFor)
	s.duration("MaxHold", s.maxHold)
	s.check(s.confirm.replicas == 0 || !s.confirm.isAll, "AllReplicas", "given instead of Replicas", "besides it")
	isWanted, isGiven := s.confirm.isWanted(), s.confirm.within != 0
	s.check(isWanted || !isGiven, "Within", "given with Replicas, AllReplicas or Disk", s.confirm.within)
	if isWanted && !isGiven {
		s.confirm.within = min(s.lease/10, confirmAtMost)
	}
	s.check(s.laneLimit == 0 || s.lane != "", "LaneLimit", "given with Lane", "alone")
	s.check(!s.isIndexed || s.permits == 1, "Permits", "1 with Index", s.permits)
	s.check(len(s.keep) <= 2 && (len(s.keep) < 2 || s.keep[0] == "PX"), "Forever", "given instead of Keep", "besides it")
	s.check(!s.isUntilDone || s.maxAttempts > 0, "UntilDone", "given with MaxAttempts", "alone")
	s.check(len(s.owner) <= longestText, "Owner", "at most 128 bytes", len(s.owner))
	if s.owner != "" {
		s.word("OWNER", s.owner)
	}
}

// terms returns those of a lease of this length, in milliseconds as the server is told.
func (s settings) terms(length time.Duration) (terms, error) {
	s.duration("Lease", length)
	length = length.Truncate(time.Millisecond)
	margin := defaultMargin(length)
	if s.margin != nil {
		margin = *s.margin
	}
	s.check(margin >= 0 && margin < length, "Margin", "0 or more, and less than the lease", margin)
	return terms{length: length, asked: length, margin: margin}, s.err
}

// defaultMargin returns a tenth of the lease, at most two seconds.
func defaultMargin(lease time.Duration) time.Duration { return min(lease/10, marginAtMost) }
