"""Interaction logs: KuaiRec's published file, and a generator of logs.

big_matrix.csv and small_matrix.csv have a header and a row for every view: user_id, video_id, play_duration,
video_duration, time, date, timestamp, watch_ratio. Used are user_id, video_id and timestamp (seconds since 1970); rows
whose timestamp is empty are left out, as some of the small file's are.

    python interactions.py prepare big_matrix.csv data/interactions.npz    a small file of each user's last views
"""

import argparse
import csv
import math
import sys
from array import array

import numpy as np

LEAST = 4  # views that a user must have: two targets, one to learn from, one before it
KEPT = 1024 + 4  # last views of a user that `prepare` keeps: the longest history and the targets
USERS, VIDEOS = 7176, 10728  # in the published big_matrix.csv, which has 12.5 million views
SOURCE = """KuaiRec.zip is offered at https://kuairec.com and https://github.com/chongminggao/KuaiRec (CC BY-SA 4.0). Unpack it, then
    python interactions.py prepare KuaiRec/data/big_matrix.csv data/interactions.npz"""
BEGIN = 1593878400.0  # 2020-07-04 16:00 UTC, about where the published log begins
DAY = 86400.0
INTERESTS, STAYING, FOLLOWING = 3, 0.9, 0.1  # of a session; how often one goes on; how often a video follows its last


class LogError(ValueError):
    """The file does not have the published format; the text says where."""


def read(path):
    """(user, video, seconds) of a CSV file's rows, three arrays as long as the log; raises LogError."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return _columns(path, csv.reader(file))
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror}. {SOURCE}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise LogError(f"{path} is no CSV file: {error}") from None


def _columns(path, rows):
    names = next(rows, [])
    missing = [name for name in ("user_id", "video_id", "timestamp") if name not in names]
    if missing:
        raise LogError(f"{path} has no column {', '.join(missing)}; its header is {','.join(names) or 'empty'}")
    places = [names.index(name) for name in ("user_id", "video_id", "timestamp")]
    users, videos, seconds = array("q"), array("q"), array("d")
    for row in rows:
        if not row:
            continue
        if len(row) != len(names):
            raise LogError(f"{path}:{rows.line_num}: {len(row)} fields where the header has {len(names)}")
        user, video, stamp = (row[place] for place in places)
        if not stamp.strip():
            continue
        try:
            values = int(user), int(video), float(stamp)
        except ValueError:
            what = f"'{user}, {video}, {stamp}' are not two whole numbers and a time"
            raise LogError(f"{path}:{rows.line_num}: {what}") from None
        if not math.isfinite(values[2]):
            raise LogError(f"{path}:{rows.line_num}: the timestamp is {stamp}")
        users.append(values[0])
        videos.append(values[1])
        seconds.append(values[2])
    if not users:
        raise LogError(f"{path} has no rows with a timestamp")
    return np.array(users), np.array(videos), np.array(seconds)


def sequences(user, video, seconds, keep=KEPT):
    """Each user's last `keep` views by time, of users with at least LEAST: (videos, seconds, offsets, catalogue).

    Videos are numbered from 0 in the order of their own numbers; user u has the entries offsets[u] to offsets[u + 1].
    Raises LogError if nobody has enough views.
    """
    order = np.lexsort((np.arange(len(user)), seconds, user))
    user, video, seconds = user[order], video[order], seconds[order]
    starts = np.flatnonzero(np.r_[True, user[1:] != user[:-1]])
    ends = np.r_[starts[1:], len(user)]
    chosen = [np.arange(max(start, end - keep), end) for start, end in zip(starts, ends) if end - start >= LEAST]
    if not chosen:
        raise LogError(f"no user has {LEAST} views or more")
    rows = np.concatenate(chosen)
    known, numbered = np.unique(video[rows], return_inverse=True)
    offsets = np.r_[0, np.cumsum([len(each) for each in chosen])]
    return numbered.astype(np.int64), seconds[rows], offsets, len(known)


def load(path):
    """The sequences of a CSV file, or of what `prepare` wrote."""
    if not str(path).endswith(".npz"):
        return sequences(*read(path))
    try:
        with np.load(path, allow_pickle=False) as kept:
            return sequences(kept["user"], kept["video"], kept["seconds"])
    except (OSError, ValueError, KeyError) as error:
        raise LogError(f"{path} is not a file that prepare wrote: {error}") from None


def generate(seed, users=300, videos=200, topics=10, mean=40):
    """A made-up log, (user, video, seconds), unsorted as the published one is by user.

    Users view in sessions, in which INTERESTS topics alternate at random: what comes next follows from the last few
    views, hardly from the last one alone. Topics depend on the user's taste and on the hour of the day; within a topic
    comes a popular video, or one of three that often follow the topic's last one.
    """
    rng = np.random.default_rng(seed)
    topic = np.arange(videos) % topics
    members = [rng.permutation(np.flatnonzero(topic == each)) for each in range(topics)]
    popular = [1 / (1 + rng.permutation(len(each))) ** 0.8 for each in members]
    popular = [each / each.sum() for each in popular]
    following = np.array([rng.choice(members[topic[each]], 3) for each in range(videos)])
    night = rng.dirichlet(np.full(topics, 0.3))
    log = []
    for user in range(users):
        taste = rng.dirichlet(np.full(topics, 0.15))
        views = max(LEAST, int(rng.lognormal(math.log(mean), 0.4)))
        clock = BEGIN + rng.uniform(0, 3 * DAY)
        while views:
            clock += rng.exponential(1.0) * DAY
            hour = (clock / 3600 + 8) % 24  # in China
            mixed = 0.3 * taste + 0.7 * night if hour < 6 or hour >= 22 else taste
            now, last = rng.choice(topics, INTERESTS, p=mixed), [None] * INTERESTS
            for _ in range(min(views, 1 + rng.poisson(8))):
                which = rng.integers(INTERESTS)
                if rng.random() > STAYING:
                    now[which], last[which] = rng.choice(topics, p=mixed), None
                if last[which] is not None and rng.random() < FOLLOWING:
                    seen = rng.choice(following[last[which]])
                else:
                    seen = rng.choice(members[now[which]], p=popular[now[which]])
                last[which] = seen
                log.append((user, seen, clock))
                views -= 1
                clock += 5 + rng.exponential(30)
    return tuple(np.array(column) for column in zip(*log))




def main():
    parser = argparse.ArgumentParser(description="Interaction logs in KuaiRec's format.")
    parser.add_argument("command", choices=["prepare"], help="keep what the task needs of a published file")
    parser.add_argument("source")
    parser.add_argument("file")
    options = parser.parse_args()
    try:
        user, video, seconds = read(options.source)
        order = np.lexsort((np.arange(len(user)), -seconds, user))  # each user's last views first
        starts = np.flatnonzero(np.r_[True, user[order][1:] != user[order][:-1]])
        place = np.arange(len(user)) - np.repeat(starts, np.diff(np.r_[starts, len(user)]))
        rows = np.sort(order[place < KEPT])
        kept = {"user": user[rows].astype(np.int32), "video": video[rows].astype(np.int32)}
        np.savez(options.file, **kept, seconds=seconds[rows])
    except (LogError, OSError) as error:
        sys.exit(str(error))
    users, videos = len(np.unique(user)), len(np.unique(video))
    print(f"{users} users, {videos} videos; {len(rows)} of {len(user)} views kept")
    if (users, videos) != (USERS, VIDEOS):
        print(f"note: not the published big_matrix.csv, which has {USERS} users and {VIDEOS} videos")


if __name__ == "__main__":
    main()
