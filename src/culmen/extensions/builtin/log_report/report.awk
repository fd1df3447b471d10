# Sum the bytes of every user, in the order in which they first appear.
{
    user = $1
    bytes = $2
    if (!(user in total)) {
        count = count + 1
        names[count] = user
        total[user] = 0
    }
    total[user] = total[user] + bytes
}
END {
    for (i = 1; i <= count; i = i + 1) {
        print names[i], total[names[i]]
    }
}
