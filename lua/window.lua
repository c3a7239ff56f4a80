-- The span that IntervalBucket and FixedWindow count in: twin of store/window.go
-- and of the limit's boundary, passed and opened. A script knows no time zones,
-- so that it is told where the windows of the calendar begin.
--
-- Both have in their records the period in us (0 if the bounds say it), whether
-- the windows are aligned to the Unix epoch (1 or 0), the number of bounds, and
-- the bounds: ascending, where the windows around the present begin, and where
-- the last of them ends. That number is at a.
--
-- What lies outside of the bounds is not guessed: nothing is decided then, and
-- the caller sends others. It takes those of the windows that have begun since
-- the state was written, or of as many as bring all that a bucket holds; and
-- those until the longest wait is over.
local function window(period, aligned, a)
  local n = fields[a] + 0
  local w = {}

  if period > 0 then
    local epoch, furthest = 1767225600000000, floor(4503599627370496 / period)
    if aligned then furthest = max(1, floor(6307200000000000 / period)) end

    function w.opened(at)
      if aligned then return at - (at + epoch) % period end
      return at
    end

    -- how many windows begin after start and not after at, and whether that is
    -- known: else it is what is known of them
    function w.passed(start, at)
      if at <= start then return 0, true end
      if aligned then return floor((at + epoch) / period) - floor((start + epoch) / period), true end
      return floor((at - start) / period), true
    end

    -- where the k-th window after the one with start begins, nil if not known
    function w.boundary(start, k) return start + min(k, furthest) * period end

    -- the same, or later if it is not known
    w.latest = w.boundary
    return w
  end

  local bounds = {}
  for i = 1, n do bounds[i] = fields[a + i] + 0 end
  w.last = bounds[n]
  -- whether not even the present is in one of the windows
  w.lost = n == 0 or now < bounds[1] or now >= w.last

  local function number(at)
    local low, high = 0, n
    while low < high do
      local mid = floor((low + high + 1) / 2)
      if bounds[mid] <= at then low = mid else high = mid - 1 end
    end
    return low
  end

  function w.opened(at) return bounds[number(at)] end

  function w.passed(start, at)
    if at <= start then return 0, true end
    return number(at) - number(start), start >= bounds[1] and at < w.last
  end

  function w.boundary(start, k)
    if start < bounds[1] or start >= w.last then return nil end
    return bounds[number(start) + k]
  end

  function w.latest(start, k)
    local i = number(start) + k
    -- no window is as long as 32 days, and nothing is looked for beyond 200 years
    return bounds[i] or max(start, w.last) + min((i - n) * 2764800000000, 6307200000000000)
  end

  return w
end
