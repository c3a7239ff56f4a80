-- The windows that FixedWindow and IntervalBucket count in: twin of internal/algorithm/window.go and of the
-- functions of internal/algorithm/intervals.go. A script knows no time zones, so the caller sends
-- the windows of the calendar.
--
-- The argument limit is a list of numbers, separated by commas: the length in us; the kind, which
-- is 0 for windows that begin with the first charge, 1 for those aligned to the Unix epoch, and 2
-- for those of the calendar, whose length is nominal. For kind 1, how much later than the epoch they
-- begin may follow, in us. For kind 2, the number of pairs follows, and the pairs, ascending: the
-- number of a window, and where it begins. A window ends where the next pair begins. If the windows
-- after it weren't sent, that pair has - for a number.
--
-- If a window of the calendar is needed that wasn't sent, the script asks for it: nothing is
-- decided then, and the caller calls again with the windows around the instants asked for.
--:functions
local windows = {}
function rare.window(limit)
  if windows[limit] then return windows[limit] end
  local f = fields(limit)
  local length, kind, w = f[1], f[2], {}
  local epoch, slack = 1767225600000000, 0
  windows[limit] = w

  if kind ~= 2 then
    local aligned, furthest = kind == 1, floor(4503599627370496 / length)
    if aligned then epoch, furthest = epoch - (f[3] or 0), max(1, floor(6307200000000000 / length)) end

    function w.startAt(at)
      if aligned then return at - (at + epoch) % length end
      return at
    end

    -- how many windows begin after start and not after at
    function w.boundariesIn(start, at)
      if at <= start then return 0 end
      if aligned then return floor((at + epoch) / length) - floor((start + epoch) / length) end
      return floor((at - start) / length)
    end

    -- where the present window ends, which begins at start
    function w.endOf(start) return start + length end

    -- whether the k-th window after the one that begins at start has begun by at
    function w.begunBy(start, k, at) return start + min(k, furthest) * length <= at end
  else
    local n, numbers, starts = f[3], {}, {}
    for i = 1, n do
      numbers[i], starts[i] = tonumber(f[2 * i + 2]) or false, f[2 * i + 3]
    end
    -- clocks are never set by more than 25 hours in all, nor those of hours by one
    slack = min(length, 90000000000)

    -- the pair of the window that at is in, nil if that wasn't sent
    local function known(at)
      local low, high = 0, n
      while low < high do
        local mid = floor((low + high + 1) / 2)
        if starts[mid] <= at then low = mid else high = mid - 1 end
      end
      return low > 0 and numbers[low] and low or nil
    end

    -- the same, and asks for it
    local function find(at) return known(at) or ask(at) end

    -- whether not even the present window was sent
    w.unknown = not known(now)

    function w.startAt(at) return starts[find(at)] end

    function w.boundariesIn(start, at)
      if at <= start then return 0 end
      local i, j = find(start), find(at)
      return i and j and numbers[j] - numbers[i]
    end

    function w.endOf() return starts[known(now) + 1] end

    function w.begunBy(start, k, at)
      local i, present = find(at), find(now)
      return i and present and numbers[i] >= numbers[present] + k
    end
  end

  -- where a window begins as of now: not after the present
  function w.clampStart(start)
    if start > now then return w.startAt(now) end
    return start
  end

  -- where the present window begins, the k-th after the one that begins at start
  function w.startAfter(start, k)
    if kind == 0 then return start + k * length end
    return w.startAt(now)
  end

  -- where the k-th window after the one that ends at fin ends, or a little later
  function w.latestEnd(fin, k)
    if k == 0 then return fin end
    return fin + min(k * length + slack, 6307200000000000)
  end

  return w
end
