ipconfig /release
ipconfig /renew
